// Shared by what is drawn over an axis: one canvas with numbers, legend, tip and words; zoom, focus, marks, keys, export.

/** @param {HTMLElement} root @returns {Inks} */
function inksOf(root) {
  const of = (/** @type {string} */ name) => colourOf(root, name);
  return {
    fg: of("fg"),
    dim: of("dim"),
    line: of("line"),
    soft: of("soft"),
    accent: of("accent"),
    bg: of("bg"),
  };
}
const titled = (/** @type {Axis | undefined} */ axis) =>
  axis ? (axis.unit ? `${axis.label} (${axis.unit})` : axis.label) : "";
/** @param {Rendered} rendered @param {string} name @returns {Stage} */
function stage({ model, el, signal }, name) {
  const root = rootOf(el, name),
    numbers = make("div", { class: "drlnb-row", test: "numbers" }),
    legend = make("div", { class: "drlnb-row", test: "legend" }),
    tip = make("div", { class: "drlnb-tip", hidden: true }),
    details = make("div", { class: "drlnb-row", role: "status", test: "details" }),
    part = make("span", { test: "zoomed", role: "status" }),
    zoomed = make(
      "div",
      { class: "drlnb-row", hidden: true },
      part,
      textButton(
        "zoom-reset",
        "Reset zoom",
        "show all of it again (key 0, or a double click)",
        whole,
      ),
    );
  let said = "";
  let own = /** @type {Drawing} */ ({}),
    brush = /** @type {{ from: number; to: number } | null} */ (null),
    drawnLegend = "";
  const ask = () => board.ask();
  /** @param {Pen} pen @param {number} width @param {number} height */
  function draw(pen, width, height) {
    const ink = inksOf(root),
      { sentence } = s.state.header;
    s.geometry = own.draw(pen, width, height, ink);
    if (!s.geometry)
      pen.text(sentence || "waiting for the first news", width / 2, height / 2, ink.dim, "center");
    else if (brush) {
      const { top, bottom } = s.geometry,
        w = Math.abs(brush.to - brush.from);
      pen.rect(Math.min(brush.from, brush.to), top, w, bottom - top, ink.accent, 0.18);
    }
    follow();
  }
  // Words and numbers are those of what is shown; where only a part is, they say so.
  function follow() {
    const { header, seq } = s.state,
      span = header.name ? own.chosen?.() || s.zoom : null,
      key = span ? `${seq} ${s.zoom || "live"}` : "";
    if (key === said) return;
    said = key;
    const found = span && own.within ? own.within(span) : null,
      say = (/** @type {number} */ v) => (header.x?.kind === "clock" ? duration(v) : number(v, 4));
    zoomed.hidden = !span;
    part.textContent = span
      ? `zoomed to ${say(span[0])} to ${say(span[1])}${found ? `: ${found.text}` : ""}`
      : "";
    numbersRow(numbers, header, found?.values);
    const detail = { root, text: found ? part.textContent : "" };
    window.dispatchEvent(new CustomEvent("drlnb:zoom", { detail }));
  }
  const board = easel(root, (width) => own.height(width), guarded(model, draw), name),
    { canvas } = board;
  /** @type {Stage} */
  const s = {
    root,
    canvas,
    details,
    ask,
    state: blank(),
    geometry: null,
    groups: [],
    zoom: null,
    focus: null,
    gone: { aborted: false },
    valueAt(px) {
      const { left, right, low, high } = /** @type {Geometry} */ (s.geometry);
      return low + ((px - left) / (right - left)) * (high - low);
    },
    magnify(factor, centre) {
      if (!s.geometry) return;
      const [low, high] = s.zoom || [s.geometry.low, s.geometry.high],
        mid = centre === undefined ? (low + high) / 2 : centre,
        from = mid - (mid - low) * factor,
        to = mid + (high - mid) * factor;
      if (to - from > 1e-6) s.zoom = [from, to];
      ask();
    },
    start,
  };
  function whole() {
    s.zoom = null;
    own.whole?.();
    ask();
  }
  const where = (/** @type {MouseEvent} */ e) => {
    const box = canvas.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  };
  /** @param {KeyboardEvent} e */
  function key(e) {
    const nearer = () => s.magnify(0.6, own.centre?.()),
      keys = /** @type {Record<string, () => void>} */ ({
        "+": nearer,
        "=": nearer,
        "-": () => s.magnify(1.7, own.centre?.()),
        0: whole,
        ...own.keys,
      }),
      run = keys[e.key];
    if (run && s.state.header.name) {
      e.preventDefault();
      run();
    }
    if (!["Tab", "F6"].includes(e.key)) e.stopPropagation(); // else Lab would take b, 0 0 and arrows as commands
  }
  /** @param {PointerEvent} e */
  function down(e) {
    if (e.button !== 0) return;
    const [px] = where(e);
    brush = { from: px, to: px };
    canvas.setPointerCapture(e.pointerId);
  }
  /** @param {PointerEvent} e */
  function move(e) {
    const [px, py] = where(e);
    if (brush) {
      brush.to = px;
      ask();
      return;
    }
    const text = s.geometry && own.tip(px, py);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    tip.style.left = `${Math.max(0, Math.min(px + 12, root.clientWidth - 220))}px`;
    tip.style.top = `${canvas.offsetTop + py + 14}px`;
  }
  /** @param {PointerEvent} e */
  function up(e) {
    if (!brush) return;
    const { from } = brush,
      [px, py] = where(e);
    brush = null;
    if (s.geometry && Math.abs(px - from) > 5)
      s.zoom = [s.valueAt(Math.min(from, px)), s.valueAt(Math.max(from, px))];
    else if (s.geometry) own.tap(px, py);
    ask();
  }
  /** @param {number | null} i */
  function focusOn(i) {
    s.focus = i;
    legendRow(legend, s.state.header, i, choose);
    ask();
  }
  /** @param {number | null} i */
  function choose(i) {
    focusOn(i);
    const { series, name: source } = s.state.header;
    if (i !== null) tell({ task: series[i].name, source });
  }
  /** @param {any} e */
  function chosen(e) {
    const { series, name: source } = s.state.header,
      i = (series || []).findIndex((one) => one.name === e.detail?.task);
    if (e.detail && e.detail.source !== source && i >= 0) focusOn(i);
  }
  /** @param {State} state */
  function changed(state) {
    s.state = state;
    own.changed();
    const text = JSON.stringify(state.header.series);
    if (text !== drawnLegend) {
      drawnLegend = text;
      legendRow(legend, state.header, s.focus, choose);
    }
    if (!said) numbersRow(numbers, state.header);
    tools?.renew();
    ask();
  }
  let tools = /** @type {ReturnType<typeof toolRow> | null} */ (null);
  /** @param {Drawing} drawing */
  function start(drawing) {
    own = drawing;
    root.append(numbers, zoomed, drawing.above, canvas, tip, details, legend);
    const heard = /** @type {Record<string, (e: any) => void>} */ ({
      keydown: key,
      pointerdown: down,
      pointermove: move,
      pointerup: up,
      dblclick: whole,
      pointerleave: () => {
        tip.hidden = true;
      },
    });
    for (const [event, run] of Object.entries(heard))
      canvas.addEventListener(event, guarded(model, run));
    window.addEventListener("drlnb:select", chosen);
    const unwatch = watch(root, ask),
      unsteady = steady(root, numbers, legend);
    s.state = feed(model, changed);
    tools = toolRow(root, s.state, () => board.svg(s.state.header.sentence || ""), canvas);
    ask();
    return ending(s.gone, signal, () => {
      s.state.stop();
      unwatch();
      unsteady();
      board.stop();
      own.stop?.();
      window.removeEventListener("drlnb:select", chosen);
    });
  }
  return s;
}
