// Lanes of bars: who held what when.  Bars, work within them, waits, dots, hatched drains, marks, a line for now.

const TOP = 18,
  AXIS = 34,
  GAP = 4;
/** @type {Record<string, number | null>} */
const SPANS = { "30 s": 30, "2 min": 120, "10 min": 600, all: null };

function render(/** @type {Rendered} */ { model, el, signal }) {
  const gone = { aborted: false },
    root = rootOf(el, "timeline");
  const numbers = make("div", { class: "drlnb-row", test: "numbers" }),
    legend = make("div", { class: "drlnb-row", test: "legend" }),
    spans = make("div", {
      class: "drlnb-row",
      role: "group",
      "aria-label": "time shown",
      test: "windows",
      hidden: true,
    });
  const tip = make("div", { class: "drlnb-tip", hidden: true }),
    details = make("div", { class: "drlnb-row", role: "status", test: "details" });
  let zoom = /** @type {Point | null} */ (null),
    span_s = /** @type {number | null} */ (null),
    marked = /** @type {number | null} */ (null),
    selected = /** @type {any} */ (null),
    focus = /** @type {number | null} */ (null),
    brush = /** @type {{ from: number; to: number } | null} */ (null),
    frame = 0,
    wanted = 0;

  const ready = () => Array.isArray(state.header.lanes);
  const extra = () =>
    state.dataAt && count_(state.tables.open) + count_(state.tables.waiting)
      ? Math.min(2, (performance.now() - state.dataAt) / 1000)
      : 0;
  const now = () => (state.header.now || 0) + extra();
  /** @returns {Point} */
  function range() {
    const [low, high] = state.header.span || [0, 1],
      late = extra();
    const window_s = Math.min(span_s || Infinity, state.header.window_s || Infinity);
    /** @type {Point} */
    const whole =
      window_s < Infinity
        ? [Math.max(0, high + late - window_s), Math.max(high + late, low + 1e-9)]
        : [low, high + late];
    if (whole[1] <= whole[0]) whole[1] = whole[0] + 1;
    return zoom || whole;
  }
  /** @param {number} width @param {number} height */
  function layout(width, height) {
    const lanes = state.header.lanes,
      longest = Math.max(0, ...lanes.map((/** @type {any} */ l) => l.label.length));
    const left = Math.min(width * 0.3, Math.max(46, 12 + longest * 7.2)),
      units =
        lanes.reduce((/** @type {number} */ sum, /** @type {any} */ l) => sum + weight(l), 0) || 1;
    const room = height - TOP - AXIS,
      rows = [];
    let y = TOP;
    for (const lane of lanes) {
      const h = (room * weight(lane)) / units;
      rows.push({ y, h: Math.max(2, h - Math.min(GAP, h * 0.2)) });
      y += h;
    }
    return { left, right: width - 10, bottom: height - AXIS, rows, width, height };
  }
  const weight = (/** @type {any} */ lane) => (lane.kind === "wait" ? 0.55 : 1);
  const heightOf = () => {
    const u = ready()
      ? state.header.lanes.reduce(
          (/** @type {number} */ sum, /** @type {any} */ l) => sum + weight(l),
          0,
        )
      : 2;
    return Math.round(Math.max(110, Math.min(u <= 2 ? 140 : 300, TOP + AXIS + u * 44)));
  };

  /** @param {Pen} pen @param {number} width @param {number} height */
  function draw(pen, width, height) {
    if (!ready()) {
      pen.text(
        state.header.sentence || "waiting for the first news",
        width / 2,
        height / 2,
        colourOf(root, "dim"),
        "center",
      );
      return;
    }
    const ink = {
      fg: colourOf(root, "fg"),
      dim: colourOf(root, "dim"),
      line: colourOf(root, "line"),
      soft: colourOf(root, "soft"),
      accent: colourOf(root, "accent"),
      bg: colourOf(root, "bg"),
    };
    const at = layout(width, height),
      [low, high] = range(),
      x = (/** @type {number} */ t) => at.left + ((t - low) / (high - low)) * (at.right - at.left);
    const scale = ticks(
      low,
      high,
      (at.right - at.left) / 90,
      (state.header.x || {}).kind === "clock",
    );
    state.header.lanes.forEach((/** @type {any} */ lane, /** @type {number} */ i) => {
      pen.rect(at.left, at.rows[i].y, at.right - at.left, at.rows[i].h, ink.soft);
      pen.text(
        short(lane.label, at.left),
        at.left - 6,
        at.rows[i].y + at.rows[i].h / 2,
        lane.kind === "wait" ? ink.dim : ink.fg,
        "right",
        lane.kind !== "wait",
      );
    });
    for (const t of scale.at) {
      pen.line(
        [
          [x(t), TOP],
          [x(t), at.bottom],
        ],
        ink.line,
      );
      pen.text(
        tickText(t, scale.step, (state.header.x || {}).kind),
        x(t),
        at.bottom + 10,
        ink.dim,
        "center",
      );
    }
    pen.text(
      `${(state.header.x || {}).label || ""} (${(state.header.x || {}).unit || ""})`,
      (at.left + at.right) / 2,
      height - 8,
      ink.dim,
      "center",
    );
    pen.text(state.header.origin || "", width - 10, height - 8, ink.dim, "right");
    pen.clip(at.left, TOP - 16, at.right - at.left, at.bottom - TOP + 16, () =>
      marks(pen, at, x, [low, high], ink),
    );
    if (brush)
      pen.rect(
        Math.min(brush.from, brush.to),
        TOP,
        Math.abs(brush.to - brush.from),
        at.bottom - TOP,
        ink.accent,
        0.18,
      );
    geometry = { at, low, high, x };
  }
  let geometry = /** @type {any} */ (null),
    groups = /** @type {MarkGroup[]} */ ([]);
  /**
   * @param {Pen} pen
   * @param {any} at
   * @param {(t: number) => number} x
   * @param {Point} span
   * @param {Record<string, string>} ink
   */
  function marks(pen, at, x, span, ink) {
    const thin = state.header.thin,
      t = state.tables;
    each(
      t.absent,
      span,
      (/** @type {number} */ i, /** @type {any} */ a, /** @type {number} */ b) => {
        const row = at.rows[t.absent.lane[i]],
          left = x(Math.max(a, span[0])),
          w = x(Math.min(b, span[1])) - left;
        if (row && w > 0) {
          pen.rect(left, row.y, w, row.h, ink.bg);
          pen.hatch(left, row.y, w, row.h, "\\", ink.line);
        }
      },
    );
    each(t.waits, span, (/** @type {number} */ i, /** @type {any} */ a, /** @type {number} */ b) =>
      block(pen, at, x, t.waits, i, a, b, 1, 0.45),
    );
    each(t.waiting, span, (/** @type {number} */ i, /** @type {any} */ a) =>
      block(pen, at, x, t.waiting, i, a, now(), 1, 0.45),
    );
    for (const name of ["bars", "open"])
      each(
        t[name],
        span,
        (/** @type {number} */ i, /** @type {any} */ a, /** @type {number} */ b) =>
          block(
            pen,
            at,
            x,
            t[name],
            i,
            a,
            name === "open" ? now() : b,
            thin ? 0.34 : 1,
            thin ? 0.6 : 1,
            !thin,
          ),
      );
    each(t.work, span, (/** @type {number} */ i, /** @type {any} */ a, /** @type {number} */ b) =>
      block(pen, at, x, t.work, i, a, b, 1, 1, true),
    );
    each(t.dots, span, (/** @type {number} */ i, /** @type {any} */ a) => {
      const row = at.rows[t.dots.lane[i]],
        s = state.header.series[t.dots.series[i]],
        h = row && row.h * t.dots.share[i];
      if (h && s) {
        pen.rect(x(a) - 2, row.y - 1, 4, h + 2, ink.bg);
        pen.rect(x(a) - 1, row.y - 1, 2, h + 2, s.colour);
      }
    });
    each(
      t.drains,
      span,
      (/** @type {number} */ i, /** @type {any} */ a, /** @type {number} */ b) => {
        const row = at.rows[t.drains.lane[i]];
        if (row) pen.hatch(x(a), row.y, Math.max(1, x(b) - x(a)), row.h, "x", ink.dim);
      },
    );
    groups = groupMarks(
      (state.header.marks || []).filter(
        (/** @type {Mark} */ mark) => mark.t >= span[0] && mark.t <= span[1],
      ),
      x,
      at.right,
    );
    strokeMarks(pen, groups, TOP - 6, at.bottom, ink.fg);
    if (state.dataAt && known(state.header.now) && now() <= span[1])
      pen.line(
        [
          [x(now()), TOP],
          [x(now()), at.bottom],
        ],
        ink.accent,
        1.5,
      );
    if (selected) {
      const row = at.rows[selected.lane],
        a = x(selected.start),
        b = x(selected.stop);
      if (row) {
        pen.frame(a - 1.5, row.y - 1.5, Math.max(2, b - a) + 3, row.h + 3, ink.bg, 4);
        pen.frame(a - 1.5, row.y - 1.5, Math.max(2, b - a) + 3, row.h + 3, ink.accent, 2);
      }
    }
  }
  /** @param {Table | undefined} table @param {Point} span @param {(...args: any[]) => any} run */
  function each(table, span, run) {
    const [low, high] = span;
    if (!table) return;
    for (let i = 0; i < table.n; i++)
      if (table.stop[i] >= low && table.start[i] <= high) run(i, table.start[i], table.stop[i]);
  }
  /**
   * @param {Pen} pen
   * @param {any} at
   * @param {(t: number) => number} x
   * @param {Table} table
   * @param {number} i
   * @param {number} a
   * @param {number} b
   * @param {number} share
   * @param {number} alpha
   */
  function block(pen, at, x, table, i, a, b, share, alpha, letters = false) {
    const row = at.rows[table.lane[i]],
      series = state.header.series[table.series[i]];
    if (!row || !series) return;
    const left = Math.max(at.left - 2, x(a)),
      right = Math.min(at.right + 2, x(b)),
      w = Math.max(0.6, right - left - (right - left > 4 ? 0.7 : 0));
    const h = row.h * share,
      y = row.y + (row.h - h) / 2,
      faded = focus !== null && focus !== table.series[i] ? 0.22 : 1;
    pen.rect(left, y, w, h, series.colour, alpha * faded);
    if (series.hatch && w > 3) pen.hatch(left, y, w, h, series.hatch, inkOn(series.colour));
    if (letters && w > 8 + 6 * series.letter.length && h > 11)
      pen.text(series.letter, left + w / 2, y + h / 2, inkOn(series.colour), "center", true);
  }
  const short = (/** @type {string} */ text, /** @type {number} */ room) => {
    const most = Math.max(3, Math.floor((room - 10) / 7));
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  };

  // -- reading --------------------------------------------------------------------------------------------------------
  /** @param {any} lane */
  function barsOf(lane) {
    const list = [];
    for (const name of ["bars", "open"]) {
      const t = state.tables[name];
      for (let i = 0; t && i < t.n; i++)
        if (t.lane[i] === lane)
          list.push({
            name,
            i,
            lane,
            series: t.series[i],
            start: t.start[i],
            stop: name === "open" ? now() : t.stop[i],
            key: t.token && t.token[i] ? `#${t.token[i]}` : `@${t.start[i].toFixed(3)}`,
          });
    }
    return list.sort((a, b) => a.start - b.start);
  }
  /** @param {any} bar */
  function describe(bar) {
    const parts = (state.header.table || [])
      .filter((/** @type {any} */ c) => c.source.startsWith("bars."))
      .map((/** @type {any} */ c) => {
        const v = cellOf(state.header, state.tables, c, bar.i, bar.name);
        if (v === null || v === "" || (c.label === "leases" && v === 1)) return null;
        return typeof v === "string"
          ? c.kind === "name"
            ? c.label === "end"
              ? v
              : `${c.label} ${v}`
            : `${c.kind === "series" ? `${state.header.series[bar.series].letter} ` : ""}${v}`
          : `${c.label} ${number(v, 5)}${c.unit ? ` ${c.unit}` : ""}`;
      });
    return [...parts.filter(Boolean), bar.name === "open" ? "held now" : null].filter(Boolean);
  }
  /** @param {number} px @param {number} py */
  function hit(px, py) {
    if (!geometry) return null;
    const { at, low, high } = geometry,
      lane = at.rows.findIndex(
        (/** @type {any} */ row) => py >= row.y - 2 && py <= row.y + row.h + 2,
      );
    if (lane < 0) return null;
    const t = low + ((px - at.left) / (at.right - at.left)) * (high - low),
      reach = (3 / (at.right - at.left)) * (high - low);
    let best = null;
    for (const bar of barsOf(lane)) {
      const away = Math.max(bar.start - t, t - bar.stop, 0);
      if (away <= reach && (!best || away < best.away)) best = { ...bar, away };
    }
    return best;
  }
  /** @param {any} bar */
  function pick(bar, tellOthers = true) {
    selected = bar;
    marked = null;
    details.textContent = bar ? describe(bar).join(" · ") : "";
    canvas.setAttribute("aria-label", bar ? details.textContent : summary());
    if (tellOthers) {
      model.set("_selection", bar ? bar.key : "");
      if (model.save_changes) model.save_changes();
      if (bar) tell({ task: state.header.series[bar.series].name, source: state.header.name });
    }
    if (bar && zoom && (bar.stop < zoom[0] || bar.start > zoom[1])) {
      const half = (zoom[1] - zoom[0]) / 2,
        mid = (bar.start + bar.stop) / 2;
      zoom = [mid - half, mid + half];
    }
    board.ask();
  }
  const summary = () =>
    `${state.header.sentence || ""} (${state.header.origin || ""}). Arrow keys select a bar${(state.header.marks || []).length ? ", m reads the marks" : ""}.`;

  // -- acting ---------------------------------------------------------------------------------------------------------
  /** @param {number} factor @param {number} [centre] */
  function magnify(factor, centre) {
    const [low, high] = range(),
      mid = centre === undefined ? (low + high) / 2 : centre,
      next = /** @type {Point} */ ([mid - (mid - low) * factor, mid + (high - mid) * factor]);
    if (next[1] - next[0] > 1e-6) zoom = next;
    board.ask();
  }
  /** @param {number} by */
  function step(by) {
    const lane = selected
        ? selected.lane
        : Math.max(
            0,
            state.header.lanes.findIndex(
              (/** @type {any} */ _, /** @type {number} */ i) => barsOf(i).length,
            ),
          ),
      list = barsOf(lane);
    if (!list.length) return;
    let i = by > 0 ? -1 : list.length;
    if (selected) {
      i = list.findIndex((b) => b.key === selected.key);
      if (i < 0) i = list.findIndex((b) => b.start >= selected.start) - (by > 0 ? 1 : 0);
    }
    pick(list[Math.max(0, Math.min(list.length - 1, i + by))]);
  }
  const markAt = (/** @type {number} */ px) =>
    groups.find((one) => Math.abs(one.at - px) <= NEAR) || null;
  /** @param {number} by */
  function stepMark(by) {
    const list = groupMarks(state.header.marks || [], geometry ? geometry.x : (t) => t),
      i = marked === null ? (by > 0 ? -1 : list.length) : list.findIndex((one) => one.t === marked),
      one = list[i + by];
    if (!one) return;
    marked = one.t;
    details.textContent = one.text;
    if (zoom && (one.t < zoom[0] || one.t > zoom[1])) {
      const half = (zoom[1] - zoom[0]) / 2;
      zoom = [one.t - half, one.t + half];
    }
    board.ask();
  }
  /** @param {number} by */
  function stepLane(by) {
    for (
      let lane = (selected ? selected.lane : -1) + by;
      lane >= 0 && lane < state.header.lanes.length;
      lane += by
    ) {
      const list = barsOf(lane),
        t = selected ? selected.start : -Infinity;
      if (list.length)
        return pick(
          list.reduce(
            (best, b) => (Math.abs(b.start - t) < Math.abs(best.start - t) ? b : best),
            list[0],
          ),
        );
    }
  }
  /** @type {Record<string, () => void>} */
  const KEYS = {
    ArrowRight: () => step(1),
    ArrowLeft: () => step(-1),
    ArrowDown: () => stepLane(1),
    ArrowUp: () => stepLane(-1),
    m: () => stepMark(1),
    M: () => stepMark(-1),
    Home: () => {
      selected = null;
      step(1);
    },
    End: () => {
      selected = null;
      step(-1);
    },
    Enter: () => selected && pick(selected),
    Escape: () => pick(null),
    "+": () => magnify(0.6),
    "=": () => magnify(0.6),
    "-": () => magnify(1.7),
    0: () => {
      zoom = null;
      board.ask();
    },
    " ": () => {
      zoom = zoom ? null : range();
      board.ask();
    },
  };
  /** @param {any} e */
  function key(e) {
    const run = KEYS[e.key];
    if (run && ready()) {
      e.preventDefault();
      run();
    }
    if (!["Tab", "F6"].includes(e.key)) e.stopPropagation(); // else Lab would take b, 0 0 and arrows as commands
  }
  const where = (/** @type {any} */ e) => {
    const box = canvas.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  };
  /** @param {any} e */
  function move(e) {
    const [px, py] = where(e);
    if (brush) {
      brush.to = px;
      board.ask();
      return;
    }
    const bar = hit(px, py),
      mark = py < TOP || !bar ? markAt(px) : null;
    tip.hidden = !bar && !mark;
    if (tip.hidden) return;
    tip.textContent = mark ? mark.text.replace(/(: |, )/g, "$1\n") : describe(bar).join("\n");
    tip.style.left = `${Math.max(0, Math.min(px + 12, root.clientWidth - 200))}px`;
    tip.style.top = `${canvas.offsetTop + py + 14}px`;
  }
  /** @param {any} e */
  function up(e) {
    if (!brush) return;
    const { from } = brush,
      [to] = where(e),
      g = geometry;
    brush = null;
    if (g && Math.abs(to - from) > 5) {
      const t = (/** @type {number} */ px) =>
        g.low + ((px - g.at.left) / (g.at.right - g.at.left)) * (g.high - g.low);
      zoom = [t(Math.min(from, to)), t(Math.max(from, to))];
    } else {
      const [px, py] = where(e),
        mark = py < TOP ? markAt(px) : null;
      if (mark) details.textContent = mark.text;
      else pick(hit(px, py));
    }
    board.ask();
  }
  /** @param {any} e */
  function wheel(e) {
    if (document.activeElement !== canvas && !e.ctrlKey) return; // the page scrolls unless the picture has the focus
    e.preventDefault();
    const [px] = where(e),
      g = geometry;
    if (g)
      magnify(
        e.deltaY > 0 ? 1.25 : 0.8,
        g.low + ((px - g.at.left) / (g.at.right - g.at.left)) * (g.high - g.low),
      );
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
  // Spans to look at, where the picture says that they make sense; the newest edge stays.
  function renewSpans() {
    const [low, high] = state.header.span || [0, 0],
      names = state.header.windows
        ? Object.keys(SPANS).filter((name) => SPANS[name] === null || SPANS[name] < high - low)
        : [];
    spans.hidden = names.length < 2;
    if (spans.dataset.key !== names.join()) {
      spans.dataset.key = names.join();
      spans.replaceChildren(
        ...names.map((name) =>
          make("button", {
            type: "button",
            test: `window-${name.replace(/\W/g, "")}`,
            text: name,
            title: name === "all" ? "the whole run" : `the last ${name}`,
            onclick: () => {
              span_s = SPANS[name];
              zoom = null;
              renewSpans();
              board.ask();
            },
          }),
        ),
      );
    }
    [...spans.children].forEach((node) =>
      node.setAttribute("aria-pressed", String(SPANS[node.textContent] === span_s)),
    );
  }
  const renewLegend = () => legendRow(legend, state.header, focus, choose);
  const count_ = (/** @type {Table} */ table) => (table ? table.n : 0);
  let drawnLegend = "";
  function changed() {
    const text = JSON.stringify(state.header.series);
    if (text !== drawnLegend) {
      drawnLegend = text;
      renewLegend();
    }
    renewSpans();
    numbersRow(numbers, state.header);
    if (selected) {
      const same = barsOf(selected.lane).find((b) => b.key === selected.key);
      if (same) {
        selected = same;
        details.textContent = describe(same).join(" · ");
      }
    }
    if (!selected && marked === null && Date.now() - wanted > 5000) {
      wanted = Date.now();
      canvas.setAttribute("aria-label", summary());
    }
    if (tools) tools.renew();
    board.ask();
    if (!frame && count_(state.tables.open) + count_(state.tables.waiting) && state.dataAt)
      frame = requestAnimationFrame(roll);
  }
  function roll() {
    frame = 0;
    if (gone.aborted || !state.dataAt || performance.now() - state.dataAt > 2100) return;
    board.ask();
    frame = requestAnimationFrame(roll);
  }
  let tools = /** @type {ReturnType<typeof toolRow> | null} */ (null),
    state = blank();
  const board = easel(root, heightOf, guarded(model, draw), "timeline"),
    { canvas } = board;
  root.append(numbers, spans, canvas, tip, details, legend);
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
  canvas.addEventListener("wheel", guarded(model, wheel), { passive: false });
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
    cancelAnimationFrame(frame);
    window.removeEventListener("drlnb:select", chosen);
  }
  if (signal) signal.addEventListener("abort", cleanup, { once: true });
  return cleanup;
}
export default { render };
