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
    function hold(/** @type {number} */ i) {
      for (const v of [t.y[i], t.lo[i], t.hi[i]].filter(known)) {
        bottom = Math.min(bottom, v);
        top = Math.max(top, v);
      }
    }
    for (let i = 0; t && i < t.n; i++) {
      if (s.zoom && (t.x[i] < s.zoom[0] || t.x[i] > s.zoom[1])) continue;
      low = Math.min(low, t.x[i]);
      high = Math.max(high, t.x[i]);
      hold(i);
    }
    // What a line of steps came to before holds within the part, too.
    if (s.zoom) for (const line of lines) if (line.step) steps(line.at, s.zoom, hold);
    if (!t?.n || !(top >= bottom)) return null;
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
    /** @type {Geometry} */
    const places = { left, right, top: C_TOP, bottom, low, high, x, rows: [] };
    pen.clip(left, C_TOP - 2, right - left, bottom - C_TOP + 4, () =>
      lines.forEach((line) => stroke(pen, line, places, y, ink)),
    );
    const say = (/** @type {number} */ v) => `${ax?.label} ${number(v)}`;
    s.groups = groupMarks(marksIn(s.state.header, [low, high]), x, right, say);
    strokeMarks(pen, s.groups, C_TOP + 9, bottom, ink.fg);
    ends(pen, x, y, left, right, bottom);
    if (cursor !== null && cursor >= low && cursor <= high)
      pen.line(segment(x(cursor), C_TOP, x(cursor), bottom), ink.accent, 1, [3, 3]);
    return places;
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
  // Each step of a line between two values: its value, its begin and its end.
  /** @param {number[]} at @param {Point} span @param {(i: number, from: number, to: number) => void} run */
  function steps(at, [low, high], run) {
    const { x } = s.state.tables.points;
    for (let k = 0; k + 1 < at.length; k++) {
      const from = Math.max(x[at[k]], low),
        to = Math.min(x[at[k + 1]], high);
      if (to > from) run(at[k], from, to);
    }
  }
  // Steps as they are; of those that are too narrow to be seen each pixel's mean, above a band from its least to its most.
  /**
   * @param {Pen} pen
   * @param {Drawn} line
   * @param {Geometry} places
   * @param {(v: number) => number} y
   * @param {string} colour
   * @param {number} wide
   */
  function strokeSteps(pen, line, { low, high, x }, y, colour, wide) {
    const { y: level, lo, hi } = s.state.tables.points,
      points = /** @type {Point[]} */ ([]);
    let pixel = { at: NaN, from: 0, to: 0, held: 0, lo: 0, hi: 0 };
    function flush() {
      const { at, from, to, held, lo: least, hi: most } = pixel,
        mean = y(held / (to - from));
      pixel.at = NaN;
      if (!(to > from) || Number.isNaN(at)) return;
      if (most > least) pen.rect(from, y(most), to - from, y(least) - y(most), colour, 0.12);
      points.push([from, mean], [to, mean]);
    }
    steps(line.at, [low, high], (i, first, last) => {
      const a = x(first),
        b = x(last),
        least = known(lo[i]) ? lo[i] : level[i],
        most = known(hi[i]) ? hi[i] : level[i];
      if (b - a >= 3) {
        flush();
        if (most > least) pen.rect(a, y(most), b - a, y(least) - y(most), colour, 0.12);
        points.push([a, y(level[i])], [b, y(level[i])]);
        return;
      }
      for (let from = a; from < b; ) {
        const at = Math.floor(from + 1e-9),
          to = Math.min(at + 1, b);
        if (pixel.at !== at) {
          flush();
          pixel = { at, from, to, held: 0, lo: Infinity, hi: -Infinity };
        }
        pixel.held += level[i] * (to - from);
        pixel.to = from = to;
        pixel.lo = Math.min(pixel.lo, least);
        pixel.hi = Math.max(pixel.hi, most);
      }
    });
    flush();
    if (line.at.length === 1)
      pen.rect(x(s.state.tables.points.x[line.at[0]]) - 2, y(level[line.at[0]]) - 2, 4, 4, colour);
    pen.line(points, colour, wide, s.state.header.series[line.series].hatch ? [6, 3] : []);
  }
  /**
   * @param {Pen} pen
   * @param {Drawn} line
   * @param {Geometry} places
   * @param {(v: number) => number} y
   * @param {Inks} ink
   */
  function stroke(pen, line, places, y, ink) {
    const t = s.state.tables.points,
      { x, left, right } = places,
      series = s.state.header.series[line.series],
      faded = s.focus !== null && s.focus !== line.series;
    if (!series || !line.at.length) return;
    const colour = faded ? ink.line : series.colour;
    if (line.step) return strokeSteps(pen, line, places, y, colour, faded ? 1 : 2);
    const at = thin(line.at, t, x, right - left),
      band = at.filter((i) => known(t.lo[i]) && known(t.hi[i])),
      edge = (/** @type {string} */ name) =>
        band.map((i) => /** @type {Point} */ ([x(t.x[i]), y(t[name][i])]));
    if (band.length > 1 && !faded)
      pen.area([...edge("hi"), ...edge("lo").reverse()], series.colour, 0.22);
    const points = /** @type {Point[]} */ ([]);
    at.forEach((i) => points.push([x(t.x[i]), y(t.y[i])]));
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
        const before = line.at.filter((k) => t.x[k] <= value),
          i = line.step && before.length ? before[before.length - 1] : line.at.reduce(closer),
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
