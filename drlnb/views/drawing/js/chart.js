// Lines with a band, or steps, over numbers: learning curves, waits.  Hover reads the nearest point of every line.

const C_TOP = 20,
  C_LEFT = 62,
  C_AXIS = 36;

function render(/** @type {Rendered} */ rendered) {
  const s = stage(rendered, "chart"),
    { canvas, details } = s,
    knob = make("input", {
      type: "range",
      min: -1,
      max: 2,
      step: 0.01,
      test: "slider",
      "aria-label": "rho: cost of a second of a delayed round / of an idle collector",
      oninput: () => {
        moved = true;
        slide();
        s.ask();
      },
    }),
    price = make("span", { test: "price", role: "status" }),
    above = make("label", { class: "drlnb-row", hidden: true }, knob, price);
  let cursor = /** @type {number | null} */ (null),
    lines = /** @type {Drawn[]} */ ([]),
    moved = false;

  function collect() {
    const t = s.state.tables.points;
    lines = (s.state.header.lines || []).map((line) => ({ ...line, at: [] }));
    for (let i = 0; t && i < t.n; i++) lines[t.line[i]]?.at.push(i);
  }
  function extent() {
    const t = s.state.tables.points;
    let [low, high, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; t && i < t.n; i++) {
      if (s.zoom && (t.x[i] < s.zoom[0] || t.x[i] > s.zoom[1])) continue;
      low = Math.min(low, t.x[i]);
      high = Math.max(high, t.x[i]);
      for (const v of [t.y[i], t.lo[i], t.hi[i]].filter(known)) {
        bottom = Math.min(bottom, v);
        top = Math.max(top, v);
      }
    }
    if (!(high >= low) || !(top >= bottom)) return null;
    [low, high] = s.zoom || apart(low, high);
    [bottom, top] = apart(bottom, top);
    const pad = (top - bottom) * (s.state.header.marks?.length ? 0.14 : 0.06); // room for the words of marks
    return { low, high, least: bottom - pad, most: top + pad };
  }
  /** @param {number} low @param {number} high @returns {Point} */
  function apart(low, high) {
    if (high !== low) return [low, high];
    return [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
  }
  /** @type {Drawing["draw"]} */
  function draw(pen, width, height, ink) {
    const span = extent(),
      { origin, x: ax, y: ay } = s.state.header;
    const whence = origin || "";
    pen.text(whence, width - 10, 9, ink.dim, "right");
    if (!span) return null;
    const { low, high, least, most } = span,
      left = C_LEFT,
      right = width - 12,
      bottom = height - C_AXIS,
      x = (/** @type {number} */ v) => left + ((v - low) / (high - low)) * (right - left),
      y = (/** @type {number} */ v) =>
        known(v) ? bottom - ((v - least) / (most - least)) * (bottom - C_TOP) : NaN;
    const down = ticks(least, most, (bottom - C_TOP) / 44),
      across = ticks(low, high, Math.max(3, (right - left) / 90), ax?.kind === "clock");
    for (const v of down.at) {
      pen.line(segment(left, y(v), right, y(v)), ink.line);
      pen.text(tickText(v, down.step), left - 6, y(v), ink.dim, "right");
    }
    for (const v of across.at) {
      const text = tickText(v, across.step, ax?.kind);
      pen.line(segment(x(v), bottom, x(v), bottom + 4), ink.dim);
      pen.text(text, Math.min(x(v), width - 18), bottom + 12, ink.dim, "center");
    }
    pen.line(segment(left, bottom, right, bottom), ink.dim);
    const words = short(titled(ax), width - 10),
      wide = 7 * words.length > right - left,
      free = width - 6.2 * whence.length - 20, // beside where the picture is from
      at = 7 * titled(ay).length > free - left ? 4 : left;
    pen.text(words, wide ? width / 2 : (left + right) / 2, height - 8, ink.dim, "center");
    pen.text(short(titled(ay), free), at, 9, ink.dim, "left");
    pen.clip(left, C_TOP - 2, right - left, bottom - C_TOP + 4, () =>
      lines.forEach((line) => stroke(pen, line, x, y, right - left, ink)),
    );
    const say = (/** @type {number} */ v) => `${ax?.label} ${number(v)}`;
    s.groups = groupMarks(marksIn(s.state.header, [low, high]), x, right, say);
    strokeMarks(pen, s.groups, C_TOP + 9, bottom, ink.fg);
    ends(pen, x, y, left, right, bottom);
    if (cursor !== null && cursor >= low && cursor <= high)
      pen.line(segment(x(cursor), C_TOP, x(cursor), bottom), ink.accent, 1, [3, 3]);
    return { left, right, top: C_TOP, bottom, low, high, x, rows: [] };
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
   * @param {Drawn} line
   * @param {(v: number) => number} x
   * @param {(v: number) => number} y
   * @param {number} room
   * @param {Inks} ink
   */
  function stroke(pen, line, x, y, room, ink) {
    const t = s.state.tables.points,
      series = s.state.header.series[line.series],
      faded = s.focus !== null && s.focus !== line.series;
    if (!series || !line.at.length) return;
    const at = thin(line.at, t, x, room),
      band = at.filter((i) => known(t.lo[i]) && known(t.hi[i])),
      edge = (/** @type {string} */ name) =>
        band.map((i) => /** @type {Point} */ ([x(t.x[i]), y(t[name][i])]));
    if (band.length > 1 && !faded)
      pen.area([...edge("hi"), ...edge("lo").reverse()], series.colour, 0.22);
    const points = /** @type {Point[]} */ ([]);
    at.forEach((i, k) => {
      if (line.step && k) points.push([x(t.x[i]), y(t.y[at[k - 1]])]);
      points.push([x(t.x[i]), y(t.y[i])]);
    });
    const colour = faded ? ink.line : series.colour;
    if (line.dots) at.forEach((i) => pen.rect(x(t.x[i]) - 3, y(t.y[i]) - 3, 6, 6, colour));
    else pen.line(points, colour, faded ? 1 : 2, series.hatch ? [6, 3] : []);
    if (at.length === 1 && !line.dots) pen.rect(points[0][0] - 2, points[0][1] - 2, 4, 4, colour);
  }
  // A letter at the end of each line; letters that would lie on each other, or on the axis, are moved apart.
  /**
   * @param {Pen} pen
   * @param {(v: number) => number} x
   * @param {(v: number) => number} y
   * @param {number} left
   * @param {number} right
   * @param {number} bottom
   */
  function ends(pen, x, y, left, right, bottom) {
    const t = s.state.tables.points,
      labels = /** @type {(Series & { x: number; y: number })[]} */ ([]);
    for (const line of lines.filter((one) => !one.dots)) {
      const all = line.at.filter((i) => known(t.y[i])),
        highest = (/** @type {number} */ a, /** @type {number} */ b) => (t.y[b] > t.y[a] ? b : a),
        i = line.step ? all.reduce(highest, all[0]) : all[all.length - 1];
      if (i === undefined) continue;
      const at = Math.min(right - 8, x(t.x[i]) + 8);
      if (at > left) labels.push({ ...s.state.header.series[line.series], x: at, y: y(t.y[i]) });
    }
    labels.sort((a, b) => a.y - b.y);
    for (const by of [15, -15]) {
      labels.forEach((l, i) => {
        if (by < 0) l.y = Math.min(l.y, bottom - 8);
        for (const near of labels.slice(0, i))
          if (Math.abs(l.x - near.x) < 15 && Math.abs(l.y - near.y) < 15) l.y = near.y + by;
      });
      labels.reverse();
    }
    for (const l of labels) {
      pen.rect(l.x - 7, l.y - 7, 14, 14, l.colour);
      pen.text(l.letter, l.x, l.y, inkOn(l.colour), "center", true);
    }
  }
  /** @param {number} value */
  function read(value) {
    const t = s.state.tables.points,
      at = s.geometry?.x(value),
      closer = (/** @type {number} */ a, /** @type {number} */ b) =>
        Math.abs(t.x[b] - value) < Math.abs(t.x[a] - value) ? b : a;
    const points = lines
      .filter((line) => line.at.length)
      .map((line) => {
        const i = line.at.reduce(closer),
          { letter } = s.state.header.series[line.series],
          band = known(t.lo[i]) ? ` (${number(t.lo[i])} to ${number(t.hi[i])})` : "";
        return `${letter} ${line.label}: ${number(t.y[i], 4)}${band}`;
      });
    const marks = s.groups.filter((group) => at !== undefined && Math.abs(group.at - at) <= NEAR);
    return [...points, ...marks.map((group) => group.text)];
  }
  /** @param {number | null} value */
  function show(value) {
    cursor = value;
    const parts = value === null ? [] : [axisText(value), ...read(value)];
    details.textContent = parts.join(" · ");
    s.ask();
  }
  const axisText = (/** @type {number} */ value) =>
    `${s.state.header.x?.label} ${count(Math.round(value))}`;
  // A price that the page may move: cost = price x first line + second line; what is least and what cold costs follow.
  function slide() {
    const { slider } = s.state.header,
      t = s.state.tables.points;
    above.hidden = !slider;
    if (!slider) return;
    if (!moved) knob.value = String(Math.log10(slider.value));
    const rho = moved ? 10 ** Number(knob.value) : slider.value,
      of = (/** @type {number} */ k) => lines[k]?.at || [],
      cost = of(slider.cost);
    cost.forEach((i, k) => {
      t.y[i] = rho * t.y[of(0)[k]] + t.y[of(1)[k]];
      const [w, idle, along] = slider.errors?.[k] || [NaN, NaN, NaN],
        error = Math.sqrt(Math.max(0, (rho * w) ** 2 + idle ** 2 - 2 * along * rho * w * idle));
      if (known(error)) {
        t.lo[i] = t.y[i] - error;
        t.hi[i] = t.y[i] + error;
      }
    });
    for (const i of of(slider.chosen)) t.y[i] = t.y[cost[slider.at]];
    const best = cost.reduce((a, b) => (t.y[b] < t.y[a] ? b : a), cost[0]),
      [dot] = of(slider.best),
      cold = slider.cold ? rho * slider.cold[0] + slider.cold[1] : NaN;
    for (const i of of(slider.line)) t.y[i] = cold;
    t.x[dot] = t.x[best];
    t.y[dot] = t.y[best];
    price.textContent = `${slider.label} ${number(rho)}: least cost ${duration(t.y[best])}, started ${duration(t.x[best])} after sending; cold ${duration(cold)}`;
  }
  /** @param {number} by */
  function step(by) {
    const t = s.state.tables.points,
      points = lines.flatMap((line) => line.at.map((i) => t.x[i])),
      marks = (s.state.header.marks || []).map((mark) => mark.t),
      all = [...new Set([...points, ...marks])].sort((a, b) => a - b),
      away = (/** @type {number} */ i) => Math.abs(all[i] - Number(cursor));
    if (!all.length) return;
    let i = by > 0 ? -1 : all.length;
    if (cursor !== null) i = all.reduce((best, _, k) => (away(k) < away(best) ? k : best), 0);
    show(all[Math.max(0, Math.min(all.length - 1, i + by))]);
  }
  return s.start({
    above,
    draw,
    height: (width) => (width < 480 ? 220 : 260),
    tip(px) {
      const { left, right } = /** @type {Geometry} */ (s.geometry);
      return px < left || px > right ? "" : read(s.valueAt(px)).join("\n");
    },
    tap: (px) => show(s.valueAt(px)),
    centre: () => (cursor === null ? undefined : cursor),
    keys: {
      ArrowRight: () => step(1),
      ArrowLeft: () => step(-1),
      Escape: () => show(null),
    },
    changed() {
      collect();
      slide();
      canvas.setAttribute("aria-label", labelOf(s.state.header));
    },
  });
}
export default { render };
