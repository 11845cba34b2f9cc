// Lines with a band, or steps, over numbers: learning curves, waits.  Hover reads the nearest point of every line.

const C_TOP = 20,
  C_LEFT = 62,
  C_AXIS = 36;

function render(/** @type {Rendered} */ { model, el, signal }) {
  const gone = { aborted: false },
    root = rootOf(el, "chart");
  const numbers = make("div", { class: "drlnb-row", test: "numbers" }),
    legend = make("div", { class: "drlnb-row", test: "legend" });
  const tip = make("div", { class: "drlnb-tip", hidden: true }),
    details = make("div", { class: "drlnb-row", role: "status", test: "details" });
  const knob = make("input", {
      type: "range",
      min: -1,
      max: 2,
      step: 0.01,
      test: "slider",
      "aria-label": "rho: cost of a second of a delayed round / of an idle collector",
      oninput: () => {
        moved = true;
        slide();
        board.ask();
      },
    }),
    price = make(
      "label",
      { class: "drlnb-row", hidden: true },
      knob,
      make("span", { test: "price", role: "status" }),
    );
  let zoom = /** @type {Point | null} */ (null),
    focus = /** @type {number | null} */ (null),
    brush = /** @type {{ from: number; to: number } | null} */ (null),
    cursor = /** @type {number | null} */ (null),
    geometry = /** @type {any} */ (null),
    lines = /** @type {any[]} */ ([]),
    groups = /** @type {MarkGroup[]} */ ([]),
    drawnLegend = "",
    moved = false;

  function collect() {
    const t = state.tables.points,
      found = new Map();
    for (let i = 0; t && i < t.n; i++) {
      if (!found.has(t.line[i])) found.set(t.line[i], []);
      found.get(t.line[i]).push(i);
    }
    lines = (state.header.lines || []).map((/** @type {any} */ line, /** @type {number} */ k) => ({
      ...line,
      k,
      at: found.get(k) || [],
    }));
  }
  function extent() {
    const t = state.tables.points;
    let [low, high, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; t && i < t.n; i++) {
      if (zoom && (t.x[i] < zoom[0] || t.x[i] > zoom[1])) continue;
      low = Math.min(low, t.x[i]);
      high = Math.max(high, t.x[i]);
      for (const v of [t.y[i], t.lo[i], t.hi[i]])
        if (known(v)) {
          bottom = Math.min(bottom, v);
          top = Math.max(top, v);
        }
    }
    if (!(high >= low) || !(top >= bottom)) return null;
    if (high === low) {
      const pad = Math.abs(low) * 0.1 || 1;
      low -= pad;
      high += pad;
    }
    if (top === bottom) {
      top += Math.abs(top) * 0.1 || 1;
      bottom -= Math.abs(bottom) * 0.1 || 1;
    }
    const pad = (top - bottom) * 0.06;
    return {
      low: zoom ? zoom[0] : low,
      high: zoom ? zoom[1] : high,
      bottom: bottom - pad,
      top: top + pad,
    };
  }
  /** @param {Pen} pen @param {number} width @param {number} height */
  function draw(pen, width, height) {
    const span = extent(),
      ink = {
        fg: colourOf(root, "fg"),
        dim: colourOf(root, "dim"),
        line: colourOf(root, "line"),
        accent: colourOf(root, "accent"),
      };
    pen.text(state.header.origin || "", width - 10, 9, ink.dim, "right");
    if (!span) {
      geometry = null;
      pen.text(
        state.header.sentence || "waiting for the first news",
        width / 2,
        height / 2,
        ink.dim,
        "center",
      );
      return;
    }
    const left = C_LEFT,
      right = width - 12,
      bottom = height - C_AXIS,
      ax = state.header.x || {},
      ay = state.header.y || {};
    const x = (/** @type {any} */ v) =>
        left + ((v - span.low) / (span.high - span.low)) * (right - left),
      y = (/** @type {any} */ v) =>
        known(v) ? bottom - ((v - span.bottom) / (span.top - span.bottom)) * (bottom - C_TOP) : NaN;
    const down = ticks(span.bottom, span.top, (bottom - C_TOP) / 44),
      across = ticks(span.low, span.high, (right - left) / 90, ax.kind === "clock");
    for (const v of down.at) {
      pen.line(
        [
          [left, y(v)],
          [right, y(v)],
        ],
        ink.line,
      );
      pen.text(tickText(v, down.step), left - 6, y(v), ink.dim, "right");
    }
    for (const v of across.at) {
      pen.line(
        [
          [x(v), bottom],
          [x(v), bottom + 4],
        ],
        ink.dim,
      );
      pen.text(
        tickText(v, across.step, ax.kind),
        Math.min(x(v), width - 18),
        bottom + 12,
        ink.dim,
        "center",
      );
    }
    pen.line(
      [
        [left, bottom],
        [right, bottom],
      ],
      ink.dim,
    );
    pen.text(
      ax.unit ? `${ax.label} (${ax.unit})` : ax.label || "",
      (left + right) / 2,
      height - 8,
      ink.dim,
      "center",
    );
    pen.text(ay.unit ? `${ay.label} (${ay.unit})` : ay.label || "", left, 9, ink.dim, "left");
    pen.clip(left, C_TOP - 2, right - left, bottom - C_TOP + 4, () =>
      lines.forEach((line) => stroke(pen, line, x, y, right - left)),
    );
    groups = groupMarks(
      marks().filter((/** @type {Header} */ m) => m.t >= span.low && m.t <= span.high),
      x,
      right,
      (v) => `${ax.label} ${number(v)}`,
    );
    strokeMarks(pen, groups, C_TOP + 9, bottom, ink.fg);
    ends(pen, x, y, [left, right]);
    if (cursor !== null && cursor >= span.low && cursor <= span.high)
      pen.line(
        [
          [x(cursor), C_TOP],
          [x(cursor), bottom],
        ],
        ink.accent,
        1,
        [3, 3],
      );
    if (brush)
      pen.rect(
        Math.min(brush.from, brush.to),
        C_TOP,
        Math.abs(brush.to - brush.from),
        bottom - C_TOP,
        ink.accent,
        0.18,
      );
    geometry = { left, right, x, ...span };
  }
  // Least and greatest point per pixel column: at most two, as views/decimate.py does.
  /** @param {number[]} at @param {Table} t @param {(v: number) => number} x @param {number} room */
  function thin(at, t, x, room) {
    if (at.length <= 2 * room) return at;
    const keep = /** @type {number[]} */ ([]);
    for (let i = 0; i < at.length; ) {
      const column = Math.floor(x(t.x[at[i]]));
      let low = at[i],
        high = at[i];
      for (; i < at.length && Math.floor(x(t.x[at[i]])) === column; i++) {
        if (t.y[at[i]] < t.y[low]) low = at[i];
        if (t.y[at[i]] > t.y[high]) high = at[i];
      }
      keep.push(...(low === high ? [low] : [Math.min(low, high), Math.max(low, high)]));
    }
    return keep;
  }
  /**
   * @param {Pen} pen
   * @param {any} line
   * @param {(v: number) => number} x
   * @param {(v: number) => number} y
   * @param {number} room
   */
  function stroke(pen, line, x, y, room) {
    const t = state.tables.points,
      series = state.header.series[line.series],
      faded = focus !== null && focus !== line.series;
    if (!series || !line.at.length) return;
    const at = thin(line.at, t, x, room),
      band = at.filter((/** @type {number} */ i) => known(t.lo[i]) && known(t.hi[i]));
    if (band.length > 1 && !faded)
      pen.area(
        [
          ...band.map((/** @type {number} */ i) => /** @type {Point} */ ([x(t.x[i]), y(t.hi[i])])),
          ...band
            .reverse()
            .map((/** @type {number} */ i) => /** @type {Point} */ ([x(t.x[i]), y(t.lo[i])])),
        ],
        series.colour,
        0.22,
      );
    const points = /** @type {Point[]} */ ([]);
    at.forEach((/** @type {number} */ i, /** @type {number} */ k) => {
      if (line.step && k) points.push([x(t.x[i]), y(t.y[at[k - 1]])]);
      points.push([x(t.x[i]), y(t.y[i])]);
    });
    const colour = faded ? colourOf(root, "line") : series.colour;
    if (line.dots)
      at.forEach((/** @type {number} */ i) => pen.rect(x(t.x[i]) - 3, y(t.y[i]) - 3, 6, 6, colour));
    else pen.line(points, colour, faded ? 1 : 2, series.hatch ? [6, 3] : []);
    if (at.length === 1 && !line.dots) pen.rect(points[0][0] - 2, points[0][1] - 2, 4, 4, colour);
  }
  // A letter at the end of each line; letters that would lie on each other are moved apart.
  /**
   * @param {Pen} pen
   * @param {(v: number) => number} x
   * @param {(v: number) => number} y
   * @param {Point} edges
   */
  function ends(pen, x, y, edges) {
    const [left, right] = edges;
    const t = state.tables.points;
    const labels = lines
      .filter((l) => l.at.length && !l.dots)
      .map((l) => {
        const all = l.at.filter((/** @type {number} */ j) => known(t.y[j])),
          i = l.step
            ? all.reduce(
                (/** @type {any} */ a, /** @type {number} */ b) => (t.y[b] > t.y[a] ? b : a),
                all[0],
              )
            : all.pop();
        return i === undefined
          ? null
          : {
              s: state.header.series[l.series],
              x: Math.min(right - 8, x(t.x[i]) + 8),
              y: y(t.y[i]),
            };
      })
      .filter((l) => l !== null)
      .filter((l) => l.x > left);
    labels.sort((a, b) => a.y - b.y);
    labels.forEach((l, i) => {
      if (i && l.y - labels[i - 1].y < 13 && Math.abs(l.x - labels[i - 1].x) < 24)
        l.y = labels[i - 1].y + 13;
    });
    for (const l of labels) {
      pen.rect(l.x - 7, l.y - 7, 14, 14, l.s.colour);
      pen.text(l.s.letter, l.x, l.y, inkOn(l.s.colour), "center", true);
    }
  }
  const marks = () => state.header.marks || [];
  /** @param {number} value */
  function read(value) {
    const t = state.tables.points;
    return lines
      .filter((l) => l.at.length)
      .map((l) => {
        const i = l.at.reduce(
            (/** @type {any} */ best, /** @type {number} */ j) =>
              Math.abs(t.x[j] - value) < Math.abs(t.x[best] - value) ? j : best,
            l.at[0],
          ),
          s = state.header.series[l.series];
        return {
          x: t.x[i],
          text: `${s.letter} ${l.label}: ${number(t.y[i], 4)}${known(t.lo[i]) ? ` (${number(t.lo[i])} to ${number(t.hi[i])})` : ""}`,
        };
      })
      .concat(
        /** @type {any} */ (
          geometry ? groups.filter((g) => Math.abs(g.at - geometry.x(value)) <= NEAR) : []
        ),
      );
  }
  /** @param {number | null} value */
  function show(value) {
    cursor = value;
    details.textContent =
      value === null
        ? ""
        : `${(state.header.x || {}).label} ${count(Math.round(value))} · ${read(value)
            .map((r) => r.text)
            .join(" · ")}`;
    board.ask();
  }
  // A price that the page may move: cost = price x first line + second line; what is least and what cold costs follow.
  function slide() {
    const s = state.header.slider,
      t = state.tables.points;
    price.hidden = !s;
    if (!s) return;
    if (!moved) knob.value = String(Math.log10(s.value));
    const rho = moved ? 10 ** Number(knob.value) : s.value,
      of = (/** @type {number} */ k) => (lines[k] ? lines[k].at : []),
      cost = of(s.cost);
    cost.forEach((/** @type {number} */ i, /** @type {number} */ k) => {
      t.y[i] = rho * t.y[of(0)[k]] + t.y[of(1)[k]];
      const [w, idle, along] = (s.errors || [])[k] || [NaN, NaN, NaN],
        error = Math.sqrt(Math.max(0, (rho * w) ** 2 + idle ** 2 - 2 * along * rho * w * idle));
      if (known(error)) {
        t.lo[i] = t.y[i] - error;
        t.hi[i] = t.y[i] + error;
      }
    });
    of(s.chosen).forEach((/** @type {number} */ i) => {
      t.y[i] = t.y[cost[s.at]];
    });
    const best = cost.reduce(
        (/** @type {any} */ a, /** @type {number} */ b) => (t.y[b] < t.y[a] ? b : a),
        cost[0],
      ),
      [dot] = of(s.best),
      cold = s.cold ? rho * s.cold[0] + s.cold[1] : NaN;
    of(s.line).forEach((/** @type {number} */ i) => {
      t.y[i] = cold;
    });
    t.x[dot] = t.x[best];
    t.y[dot] = t.y[best];
    /** @type {Element} */ (price.lastChild).textContent =
      `${s.label} ${number(rho)}: least cost ${duration(t.y[best])}, started ${duration(t.x[best])} after sending; cold ${duration(cold)}`;
  }
  const where = (/** @type {any} */ e) => {
    const box = canvas.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  };
  const valueAt = (/** @type {number} */ px) =>
    geometry.low +
    ((px - geometry.left) / (geometry.right - geometry.left)) * (geometry.high - geometry.low);
  /** @param {any} e */
  function move(e) {
    const [px, py] = where(e);
    if (brush) {
      brush.to = px;
      board.ask();
      return;
    }
    tip.hidden = !geometry || px < geometry.left || px > geometry.right;
    if (tip.hidden) return;
    tip.textContent = read(valueAt(px))
      .map((r) => r.text)
      .join("\n");
    tip.style.left = `${Math.max(0, Math.min(px + 12, root.clientWidth - 220))}px`;
    tip.style.top = `${canvas.offsetTop + py + 14}px`;
  }
  /** @param {any} e */
  function up(e) {
    if (!brush || !geometry) return;
    const { from } = brush,
      [to] = where(e);
    brush = null;
    if (Math.abs(to - from) > 5) zoom = [valueAt(Math.min(from, to)), valueAt(Math.max(from, to))];
    else show(valueAt(to));
    board.ask();
  }
  /** @param {number} factor */
  function magnify(factor) {
    if (!geometry) return;
    const mid = cursor === null ? (geometry.low + geometry.high) / 2 : cursor;
    zoom = [mid - (mid - geometry.low) * factor, mid + (geometry.high - mid) * factor];
    board.ask();
  }
  /** @param {number} by */
  function step(by) {
    const t = state.tables.points,
      all = [
        ...new Set(
          lines
            .flatMap((l) => l.at.map((/** @type {number} */ i) => t.x[i]))
            .concat(marks().map((/** @type {Header} */ m) => m.t)),
        ),
      ].sort((a, b) => a - b);
    if (all.length) {
      const here = cursor;
      const i =
        here === null
          ? by > 0
            ? -1
            : all.length
          : all.reduce(
              (best, v, k) => (Math.abs(v - here) < Math.abs(all[best] - here) ? k : best),
              0,
            );
      show(all[Math.max(0, Math.min(all.length - 1, i + by))]);
    }
  }
  /** @type {Record<string, () => void>} */
  const KEYS = {
    ArrowRight: () => step(1),
    ArrowLeft: () => step(-1),
    Escape: () => show(null),
    "+": () => magnify(0.6),
    "=": () => magnify(0.6),
    "-": () => magnify(1.7),
    0: () => {
      zoom = null;
      board.ask();
    },
  };
  /** @param {any} e */
  function key(e) {
    const run = KEYS[e.key];
    if (run) {
      e.preventDefault();
      run();
    }
    if (e.key !== "Tab") e.stopPropagation();
  }
  /** @param {number | null} i */
  function choose(i) {
    focus = i;
    renewLegend();
    board.ask();
    if (i !== null) tell({ task: state.header.series[i].name, source: state.header.name });
  }
  /** @param {any} e */
  function chosen(e) {
    const i = (state.header.series || []).findIndex(
      (/** @type {any} */ s) => s.name === (e.detail || {}).task,
    );
    if (e.detail && e.detail.source !== state.header.name && i >= 0) {
      focus = i;
      renewLegend();
      board.ask();
    }
  }
  const renewLegend = () => legendRow(legend, state.header, focus, choose);
  function changed() {
    collect();
    slide();
    const text = JSON.stringify(state.header.series);
    if (text !== drawnLegend) {
      drawnLegend = text;
      renewLegend();
    }
    numbersRow(numbers, state.header);
    canvas.setAttribute(
      "aria-label",
      `${state.header.sentence || ""} (${state.header.origin || ""})`,
    );
    if (tools) tools.renew();
    board.ask();
  }
  let tools = /** @type {ReturnType<typeof toolRow> | null} */ (null),
    state = blank();
  const board = easel(root, (w) => (w < 480 ? 220 : 260), guarded(model, draw), "chart"),
    { canvas } = board;
  root.append(numbers, price, canvas, tip, details, legend);
  for (const [name, run] of /** @type {[string, (e: any) => void][]} */ ([
    ["keydown", key],
    ["pointermove", move],
    ["pointerup", up],
    [
      "dblclick",
      () => {
        zoom = null;
        board.ask();
      },
    ],
    [
      "pointerleave",
      () => {
        tip.hidden = true;
      },
    ],
  ]))
    canvas.addEventListener(name, guarded(model, run));
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button === 0) {
      const [px] = where(e);
      brush = { from: px, to: px };
      canvas.setPointerCapture(e.pointerId);
    }
  });
  window.addEventListener("drlnb:select", chosen);
  const unwatch = watch(root, () => board.ask());
  state = feed(model, (s) => {
    state = s;
    changed();
  });
  tools = toolRow(root, state, () => board.svg(state.header.sentence || ""), canvas);
  board.ask();
  function cleanup() {
    if (gone.aborted) return;
    gone.aborted = true;
    state.stop();
    unwatch();
    board.stop();
    window.removeEventListener("drlnb:select", chosen);
  }
  if (signal) signal.addEventListener("abort", cleanup, { once: true });
  return cleanup;
}
export default { render };
