// Who holds which part of a version at one moment: hosts on a ring and who sends to whom, or a matrix of parts and hosts.

const T_TOP = 20,
  T_AXIS = 36,
  END = 65534, // the last moment; what never happens has one more
  SHAPES = [
    [0, 0],
    [0.5, 0.5],
    [0, 1],
    [0.3, 0.4],
  ]; // where a state begins in its cell, and how high it is

function render(/** @type {Rendered} */ rendered) {
  const s = stage(rendered, "topology"),
    { canvas, details } = s,
    knob = make("input", {
      type: "range",
      max: 1000,
      test: "moment",
      "aria-label": "time since the first byte",
      oninput: () => go(Number(knob.value) / 1000),
    }),
    said = make("span", { test: "said" }),
    jumps = make("span"),
    above = make("div", { class: "drlnb-row" }, knob, said, jumps);
  let at = /** @type {number | null} */ (null),
    chosen = -1,
    states = /** @type {number[]} */ ([]),
    boxes = /** @type {number[][]} */ ([]),
    jumped = "";

  const head = () => s.state.header,
    of = () => s.state.tables,
    parts = () => head().parts || [],
    end = () => (head().span || [0, 1])[1],
    now = () => (at === null ? head().at || 0 : at); // as a share of all
  /** @param {number} share */
  function go(share) {
    at = share;
    look();
  }
  // The state of each part at each host: 0 waiting, 1 receiving, 2 complete, 3 dropped.
  function look() {
    const { cells, hosts } = of(),
      { series, moments = [] } = head(),
      counts = [0, 0, 0, 0],
      tick = Math.round(now() * END); // moments are written so
    states = [];
    for (let i = 0; i < (cells?.n || 0); i++) {
      let k = cells.done[i] <= tick ? 2 : cells.begun[i] <= tick ? 1 : 0;
      if (hosts.gone[i % hosts.n] <= tick) k = 3;
      counts[k]++;
      states.push(k);
    }
    const words = counts.map((n, k) => n && `${count(n)} ${series[k].name}`);
    above.hidden = !states.length;
    knob.value = String(now() * 1000);
    said.textContent = `${duration(now() * end())} of ${duration(end())}: ${words.filter(Boolean).join(", ")}`;
    knob.setAttribute("aria-valuetext", said.textContent);
    const key = JSON.stringify(moments);
    if (jumped !== key) {
      jumped = key;
      const jump = (/** @type {Mark} */ { t, label, said: title = "" }) =>
        textButton("jump", label, title, () => go(t / end()));
      jumps.replaceChildren(...moments.map(jump));
    }
    details.textContent = describe(chosen);
    canvas.setAttribute(
      "aria-label",
      details.textContent || `${labelOf(head())}. Arrow keys select a host.`,
    );
    s.ask();
  }
  /** @type {Drawing["draw"]} */
  function draw(pen, width, height, ink) {
    boxes = [];
    if (!states.length) return null;
    pen.text(head().origin, width - 10, 9, ink.dim, "right");
    return (parts().length ? matrix : ring)(pen, width, height, ink);
  }
  // Never by colour alone: a letter where there is room; else nothing, the lower half, all of it, a bar in the middle.
  /** @param {Pen} pen @param {Inks} ink @param {[number, number, number, number]} box */
  function cell(pen, ink, ...box) {
    const i = boxes.push(box) - 1,
      [x, y, w, h] = box,
      k = states[i],
      { colour, letter } = head().series[k],
      [from, share] = SHAPES[k];
    pen.rect(x, y + h * from, w, h * share, colour, s.focus === null || s.focus === k ? 1 : 0.22);
    if (w > 9 && h > 9)
      pen.text(letter, x + w / 2, y + h / 2, k === 2 ? inkOn(colour) : ink.fg, "center", true);
    if (i === chosen) pen.frame(x - 1, y - 1, w + 2, h + 2, ink.accent, 2);
  }
  /** @type {Drawing["draw"]} */
  function ring(pen, width, height, ink) {
    const { edges, hosts } = of(),
      { series, names } = head(),
      mid = height / 2 + 4,
      t = now() * end();
    // Hosts stand on an ellipse, each as far along its line from the next one; the learner in the middle.
    const wide = width / 2 - 30,
      tall = mid - 34,
      { cos, sin } = Math,
      along = [0],
      turn = Math.PI / 360;
    for (let k = 0; k < 720; k++)
      along.push(along[k] + Math.hypot(wide * cos(k * turn), tall * sin(k * turn)));
    const place = (/** @type {number} */ i) => {
      const k = along.findIndex((v) => v >= (along[720] * (i - 1)) / hosts.n) * turn;
      return i ? [width / 2 + wide * sin(k), mid - tall * cos(k)] : [width / 2, mid];
    };
    for (let i = 0; i < edges.n; i++) {
      const [a, b] = place(edges.sender[i]),
        [c, d] = place(edges.receiver[i]),
        k = edges.series[i],
        share = Math.min(1, (t - edges.begun[i]) / (edges.stop[i] - edges.begun[i])),
        { colour, letter, hatch: mark } = series[k];
      if (!mark) pen.line(segment(a, b, c, d), ink.line, 1, [2, 4]); // as planned
      if (!(share > 0) || (s.focus !== null && s.focus !== k)) continue;
      const way = Math.atan2(d - b, c - a),
        u = share < 1 ? a + (c - a) * share : c - cos(way) * 18,
        v = share < 1 ? b + (d - b) * share : d - sin(way) * 12,
        wing = (/** @type {number} */ by) => [u - cos(way + by) * 8, v - sin(way + by) * 8];
      pen.line(segment(a, b, u, v), colour, share < 1 ? 3 : 1.5, mark ? [6, 3] : []);
      pen.line(/** @type {Point[]} */ ([wing(-0.5), [u, v], wing(0.5)]), colour, 2);
      if (mark) pen.text(letter, (a + c) / 2, (b + d) / 2 - 7, ink.fg, "center", true);
    }
    for (let i = 0; i <= hosts.n; i++) {
      const [x, y] = place(i).map((v, k) => v - 13 + 4 * k);
      pen.rect(x, y, 26, 18, ink.bg);
      pen.frame(x, y, 26, 18, ink.dim);
      if (i) cell(pen, ink, x, y, 26, 18);
      pen.text(short(names[i], 80), x + 13, y + 25, ink.fg, "center", false, 10);
    }
    const bounds = { left: 0, right: width, top: 0, bottom: height };
    return { ...bounds, low: 0, high: 1, x: (v) => v, rows: [] };
  }
  /** @type {Drawing["draw"]} */
  function matrix(pen, width, height, ink) {
    const { n } = of().hosts,
      { x: axis, part } = head(),
      [low, high] = s.zoom || [-0.5, n - 0.5],
      left = Math.max(...parts().map((text) => 7 * text.length)) + 14,
      right = width - 12,
      bottom = height - T_AXIS,
      x = (/** @type {number} */ v) => left + ((v - low) / (high - low)) * (right - left),
      h = (bottom - T_TOP) / parts().length,
      w = x(1) - x(0),
      by = Math.ceil(13 / h);
    for (const v of ticks(low, high, (right - left) / 60).at)
      if (v >= 0 && v % 1 === 0) pen.text(String(v), x(v), bottom + 10, ink.dim, "center");
    pen.text(titled(axis), (left + right) / 2, height - 8, ink.dim, "center");
    parts().forEach((text, r) => {
      const y = T_TOP + r * h,
        own = r === part;
      if (own || r % by === 0)
        pen.text(text, left - 6, y + h / 2, own ? ink.fg : ink.dim, "right", own);
      pen.clip(left, y, right - left, h + 1, () => {
        pen.rect(left, y, right - left, h, ink.soft);
        for (let v = 0; v < n; v++)
          cell(pen, ink, x(v - 0.5), y + 0.5, w - (w > 5 ? 1 : -0.5), h - 1);
        if (own) pen.frame(left, y, right - left, h, ink.fg);
      });
    });
    return { left, right, top: T_TOP, bottom, low, high, x, rows: [] };
  }
  // -- reading --------------------------------------------------------------------------------------------------------
  /** @param {number} i */
  function describe(i) {
    if (!(states[i] >= 0)) return "";
    const { cells, hosts, edges } = of(),
      { names, series, part } = head(),
      host = i % hosts.n,
      row = Math.floor(i / hosts.n),
      words = [names[host + 1], parts()[row], series[states[i]].name];
    const since = (/** @type {string} */ word, /** @type {number} */ tick) =>
      tick <= END && words.push(`${word} ${duration((tick / END) * end())}`);
    since("from", cells.begun[i]);
    since("whole at", cells.done[i]);
    since("gone at", hosts.gone[host]);
    for (let k = 0; row === part && k < edges.n; k++)
      if (edges.receiver[k] === host + 1)
        words.push(`${series[edges.series[k]].name} by ${names[edges.sender[k]]}`);
    return words.filter(Boolean).join(" · ");
  }
  const hit = (/** @type {number} */ px, /** @type {number} */ py) =>
    boxes.findIndex(([x, y, w, h]) => px >= x && px <= x + w && py >= y && py <= y + h);
  /** @param {number} i */
  function pick(i) {
    chosen = i;
    look();
  }
  /** @param {number} by */
  function step(by) {
    if (states[chosen + by] >= 0) pick(chosen + by);
  }
  return s.start({
    above,
    draw,
    height: (width) => {
      const n = parts().length;
      if (n || !states.length) return Math.min(360, 98 + 22 * n);
      return width < 480 ? 360 : 320;
    },
    tip: (px, py) => describe(hit(px, py)).replace(/ · /g, "\n"),
    tap: (px, py) => pick(hit(px, py)),
    keys: {
      ArrowRight: () => step(1),
      ArrowLeft: () => step(-1),
      ArrowDown: () => step(of().hosts.n),
      ArrowUp: () => step(-of().hosts.n),
      Home: () => go(0),
      End: () => go(1),
      Escape: () => pick(-1),
    },
    changed: look,
  });
}
export default { render };
