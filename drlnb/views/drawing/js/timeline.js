// Lanes of bars: who held what when.  Bars, work within them, waits, dots, hatched drains, marks, a line for now.

const TOP = 18,
  AXIS = 34,
  GAP = 4;
/** @type {Record<string, number | null>} */
const SPANS = { "30 s": 30, "2 min": 120, "10 min": 600, all: null };

function render(/** @type {Rendered} */ rendered) {
  const s = stage(rendered, "timeline"),
    { canvas, details } = s,
    spans = make("div", {
      class: "drlnb-row",
      role: "group",
      "aria-label": "time shown",
      test: "windows",
      hidden: true,
    });
  let span_s = /** @type {number | null} */ (null),
    marked = /** @type {number | null} */ (null),
    selected = /** @type {Bar | null} */ (null),
    frame = 0,
    wanted = 0;

  const lanes = () => s.state.header.lanes || [];
  // Whether time goes on here: rows come, and something goes on.  Of a run that has ended nobody knows what came next.
  const isLive = () =>
    Boolean(s.state.header.live) &&
    s.state.dataAt > 0 &&
    (s.state.tables.open?.n || 0) + (s.state.tables.waiting?.n || 0) > 0;
  const extra = () => (isLive() ? Math.min(2, (performance.now() - s.state.dataAt) / 1000) : 0);
  const now = () => (s.state.header.now || 0) + extra();
  /** @returns {Point} */
  function range() {
    const [low, high] = s.state.header.span || [0, 1],
      late = extra();
    const window_s = Math.min(span_s || Infinity, s.state.header.window_s || Infinity);
    /** @type {Point} */
    const whole =
      window_s < Infinity
        ? [Math.max(0, high + late - window_s), Math.max(high + late, low + 1e-9)]
        : [low, high + late];
    if (whole[1] <= whole[0]) whole[1] = whole[0] + 1;
    return s.zoom || whole;
  }
  // A place on the axis in words: a moment, or a number.
  const say = (/** @type {number} */ v) =>
    s.state.header.x?.kind === "clock" ? duration(v) : number(v, 4);
  const weight = (/** @type {Lane} */ lane) => (lane.kind === "wait" ? 0.55 : 1);
  const units = () => lanes().reduce((sum, lane) => sum + weight(lane), 0);
  /** @param {number} width @param {number} height @returns {Places} */
  function layout(width, height) {
    const longest = Math.max(0, ...lanes().map((lane) => lane.label.length)),
      room = height - TOP - AXIS,
      rows = [];
    let y = TOP;
    for (const lane of lanes()) {
      const h = (room * weight(lane)) / (units() || 1);
      rows.push({ y, h: Math.max(2, h - Math.min(GAP, h * 0.2)) });
      y += h;
    }
    const left = Math.min(width * 0.3, Math.max(46, 12 + longest * 7.2));
    return { left, right: width - 10, top: TOP, bottom: height - AXIS, rows };
  }
  function height() {
    const u = s.state.header.lanes ? units() : 2;
    const most = s.state.header.tall || (u <= 2 ? 140 : 300);
    return Math.round(Math.max(110, Math.min(most, TOP + AXIS + u * 44)));
  }

  /** @type {Drawing["draw"]} */
  function draw(pen, width, height, ink) {
    if (!lanes().length) return null;
    const at = layout(width, height),
      { left, right, bottom } = at,
      [low, high] = range(),
      x = (/** @type {number} */ t) => left + ((t - low) / (high - low)) * (right - left),
      { x: axis, origin } = s.state.header;
    lanes().forEach((lane, i) => {
      const { y, h } = at.rows[i],
        waits = lane.kind === "wait";
      pen.rect(left, y, right - left, h, ink.soft);
      const text = short(lane.label, left);
      pen.text(text, left - 6, y + h / 2, waits ? ink.dim : ink.fg, "right", !waits);
    });
    const scale = ticks(low, high, (right - left) / 90, axis?.kind === "clock");
    for (const t of scale.at) {
      pen.line(segment(x(t), TOP, x(t), bottom), ink.line);
      const text = axis?.words ? axis.words[t] || "" : tickText(t, scale.step, axis?.kind);
      pen.text(text, x(t), bottom + 10, ink.dim, "center");
    }
    const whence = origin || "",
      free = width - 6.2 * whence.length - 20, // beside where the picture is from
      words = short(titled(axis), free),
      half = 3.1 * words.length,
      middle = Math.max(half, Math.min((left + right) / 2, free - half));
    pen.text(words, middle, height - 8, ink.dim, "center");
    pen.text(whence, width - 10, height - 8, ink.dim, "right");
    pen.clip(left, TOP - 16, right - left, bottom - TOP + 16, () =>
      marks(pen, at, x, [low, high], ink),
    );
    return { ...at, low, high, x };
  }
  /**
   * @param {Pen} pen
   * @param {Places} at
   * @param {(t: number) => number} x
   * @param {Point} span
   * @param {Inks} ink
   */
  function marks(pen, at, x, span, ink) {
    const { thin, now: known_s } = s.state.header,
      t = s.state.tables,
      share = thin ? 0.34 : 1,
      alpha = thin ? 0.6 : 1,
      narrow = /** @type {Map<string, Share>} */ (new Map());
    /**
     * @param {string} name
     * @param {number} share
     * @param {number} alpha
     * @param {{ open?: boolean; letters?: boolean }} [how]
     */
    function blocks(name, share, alpha, { open, letters } = {}) {
      each(t[name], span, (i, a, b) => {
        const { lane, series } = t[name],
          isWork = name === "work",
          beside = narrow.has(`${lane[i]} ${Math.floor(x(a))} ${series[i]}`);
        if (open || x(b) - x(a) >= 1 || (isWork && !beside))
          block(pen, at, x, t[name], i, a, open ? now() : b, share, alpha, letters);
        else gather(t[name], i, x(a), x(b), isWork ? full(i) : 0);
      });
    }
    // What is narrower than a pixel counts with its share of each pixel that it lies in.
    /**
     * @param {Table} table
     * @param {number} i
     * @param {number} a
     * @param {number} b
     * @param {number} worked
     */
    function gather(table, i, a, b, worked) {
      for (let px = Math.floor(a); px < b; px++) {
        const lane = table.lane[i],
          series = table.series[i],
          key = `${lane} ${px} ${series}`,
          part = Math.min(px + 1, b) - Math.max(px, a);
        const known = narrow.get(key) || {
          lane,
          series,
          at: px,
          to: px + 1,
          below: 0,
          held: 0,
          computed: 0,
        };
        if (worked) known.computed += part * worked;
        else known.held += part;
        narrow.set(key, known);
      }
    }
    /** @param {Share} one */
    function stacked({ lane, series, at: left, to, below, held, computed }) {
      const row = at.rows[lane],
        style = s.state.header.series[series];
      if (!row || !style) return;
      const faded = s.focus !== null && s.focus !== series ? 0.22 : 1,
        w = Math.max(0.1, to - left),
        y = row.y + row.h * (1 - below - held),
        strength = lanes()[lane].kind === "wait" ? 0.45 : alpha;
      pen.rect(left, y, w, row.h * held, style.colour, strength * faded);
      if (style.hatch && w > 3)
        hatch(pen, left, y, w, row.h * held, style.hatch, inkOn(style.colour));
      const work = row.h * Math.min(1, computed);
      if (work) pen.rect(left, row.y + row.h * (1 - below) - work, w, work, style.colour, faded);
    }
    each(t.absent, span, (i, a, b) => {
      const row = at.rows[t.absent.lane[i]],
        left = x(Math.max(a, span[0])),
        w = x(Math.min(b, span[1])) - left;
      if (!row || w <= 0) return;
      pen.rect(left, row.y, w, row.h, ink.bg);
      hatch(pen, left, row.y, w, row.h, "\\", ink.line);
    });
    each(t.shares, span, (i, low, high) =>
      stacked({ ...shareOf(t.shares, i), at: x(low), to: x(high) }),
    );
    blocks("waits", 1, 0.45);
    blocks("waiting", 1, 0.45, { open: true });
    blocks("bars", share, alpha, { letters: !thin });
    blocks("open", share, alpha, { open: true, letters: !thin });
    blocks("work", 1, 1, { letters: true });
    const heights = /** @type {Record<string, number>} */ ({});
    for (const one of [...narrow.values()].sort((a, b) => b.series - a.series)) {
      const key = `${one.lane} ${one.at}`;
      stacked({ ...one, below: heights[key] || 0 });
      heights[key] = (heights[key] || 0) + Math.max(one.held, one.computed);
    }
    each(t.dots, span, (i, a) => {
      const row = at.rows[t.dots.lane[i]],
        series = s.state.header.series[t.dots.series[i]],
        h = row && row.h * t.dots.share[i];
      if (!h || !series) return;
      pen.rect(x(a) - 2, row.y - 1, 4, h + 2, ink.bg);
      pen.rect(x(a) - 1, row.y - 1, 2, h + 2, series.colour);
    });
    each(t.drains, span, (i, a, b) => {
      const row = at.rows[t.drains.lane[i]];
      if (row) hatch(pen, x(a), row.y, Math.max(1, x(b) - x(a)), row.h, "x", ink.dim);
    });
    s.groups = groupMarks(marksIn(s.state.header, span), x, at.right, say);
    strokeMarks(pen, s.groups, TOP - 6, at.bottom, ink.fg);
    if (s.state.dataAt && known(known_s) && now() <= span[1])
      pen.line(segment(x(now()), TOP, x(now()), at.bottom), ink.accent, 1.5);
    const row = selected && at.rows[selected.lane];
    if (!selected || !row) return;
    const a = x(selected.start) - 1.5,
      w = Math.max(2, x(selected.stop) - 1.5 - a) + 3;
    pen.frame(a, row.y - 1.5, w, row.h + 3, ink.bg, 4);
    pen.frame(a, row.y - 1.5, w, row.h + 3, ink.accent, 2);
  }
  /**
   * @param {Table | undefined} table
   * @param {Point} span
   * @param {(i: number, start: number, stop: number) => void} run
   */
  function each(table, [low, high], run) {
    const first = table?.low || table?.start,
      last = table?.high || table?.stop;
    for (let i = 0; table && i < table.n; i++)
      if ((table === s.state.tables.open ? now() : last[i]) >= low && first[i] <= high)
        run(i, first[i], last[i]);
  }
  // What part of a piece of work was computed: of those that are several in a row their rests are not.
  /** @param {number} i */
  function full(i) {
    const { start, stop, computed } = s.state.tables.work;
    return computed && stop[i] > start[i] ? Math.min(1, computed[i] / (stop[i] - start[i])) : 1;
  }
  // Where each second of the slots went between two moments, of what is drawn; older time evenly within its columns.
  /** @param {Point} span */
  function within([from, to]) {
    const { slots } = s.state.header,
      t = s.state.tables,
      [low, high] = [Math.max(from, 0), Math.min(to, now())];
    if (slots === undefined) return null;
    /** @param {string} name @param {(i: number, length: number) => number} of */
    function sum(name, of, open = false) {
      let total = 0;
      each(t[name], [low, high], (i, a, b) => {
        const end = open ? now() : b,
          length = end - a;
        if (length > 0)
          total += (of(i, length) * (Math.min(end, high) - Math.max(a, low))) / length;
      });
      return total;
    }
    const length = (/** @type {number} */ _, /** @type {number} */ seconds) => seconds,
      { shares } = t;
    const ofSlots = (/** @type {(i: number) => number} */ of) =>
      sum("shares", (i) => (shares.lane[i] < slots ? of(i) : 0));
    const there = slots * (high - low) - sum("absent", length),
      held =
        sum("bars", length) +
        sum("open", length, true) +
        ofSlots((i) => shares.stop[i] - shares.start[i]),
      computing = sum("work", (i, n) => n * full(i)) + ofSlots((i) => shares.computed[i]),
      refused = sum("refused", (i) => t.refused.stop[i] - t.refused.start[i]);
    const parts = {
      computing,
      idle: held - computing,
      refused,
      free: there - held - refused,
      held,
    };
    const values = /** @type {Record<string, number | null>} */ ({
      longest_wait_s: null,
      fairness: null,
    });
    for (const [key, part] of Object.entries(parts))
      values[key] = there > 0 ? Math.max(0, Math.min(1, part / there)) : NaN;
    const over = t.absent?.n ? "time that slots were there" : "time shown";
    return {
      values,
      text: `held ${percent(Number(values.held))}, computing ${percent(Number(values.computing))} of the ${over}`,
    };
  }
  const chosen = () => s.zoom || (span_s ? range() : null);
  function whole() {
    span_s = null;
    renewSpans();
  }
  // Of a column of older time: what lies below a task's share of the lane, the share, and how much of it was computed.
  /** @param {Table} table @param {number} i */
  function shareOf({ low, high, start, stop, lane, series, computed }, i) {
    const width = high[i] - low[i] || 1;
    return {
      lane: lane[i],
      series: series[i],
      below: (high[i] - stop[i]) / width,
      held: (stop[i] - start[i]) / width,
      computed: computed[i] / width,
    };
  }
  /**
   * @param {Pen} pen
   * @param {Places} at
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
      series = s.state.header.series[table.series[i]];
    if (!row || !series) return;
    const left = Math.max(at.left - 2, x(a)),
      right = Math.min(at.right + 2, x(b)),
      w = Math.max(0.6, right - left - (right - left > 4 ? 0.7 : 0)),
      isWork = table === s.state.tables.work,
      h = row.h * share * (isWork ? full(i) : 1),
      y = isWork ? row.y + row.h - h : row.y + (row.h - h) / 2,
      faded = s.focus !== null && s.focus !== table.series[i] ? 0.22 : 1,
      { colour, letter } = series;
    pen.rect(left, y, w, h, colour, alpha * faded);
    if (series.hatch && w > 3) hatch(pen, left, y, w, h, series.hatch, inkOn(colour));
    const wide = 8 + 6 * letter.length;
    if (!letters || faded < 1 || w <= wide || h <= 11) return;
    if (series.hatch) pen.rect(left + (w - wide) / 2, y + h / 2 - 7, wide, 14, colour, alpha);
    pen.text(letter, left + w / 2, y + h / 2, inkOn(colour), "center", true);
  }

  // -- reading --------------------------------------------------------------------------------------------------------
  /** @param {number} lane @returns {Bar[]} */
  function barsOf(lane) {
    const list = [];
    for (const name of ["bars", "open"]) {
      const t = s.state.tables[name];
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
  /** @param {Bar} bar @param {Column} column */
  function describeCell(bar, column) {
    const { header, tables } = s.state,
      v = cellOf(header, tables, column, bar.i, bar.name),
      { label, unit, kind } = column;
    if (v === null || v === "") return null;
    if (typeof v !== "string") return `${label} ${number(v, 5)}${unit ? ` ${unit}` : ""}`;
    if (kind === "series") return `${header.series[bar.series].letter} ${v}`;
    return kind === "name" && label !== "end" ? `${label} ${v}` : v;
  }
  /** @param {Bar} bar */
  function describe(bar) {
    const parts = (s.state.header.table || [])
      .filter((column) => column.source.startsWith("bars."))
      .map((column) => describeCell(bar, column));
    const goesOn = isLive() ? "held now" : "held to the end of what is known";
    return [...parts, bar.name === "open" ? goesOn : null].filter(Boolean);
  }
  /** @param {number} px @param {number} py */
  function hit(px, py) {
    const at = /** @type {Geometry} */ (s.geometry),
      lane = at.rows.findIndex((row) => py >= row.y - 2 && py <= row.y + row.h + 2);
    if (lane < 0) return null;
    const t = s.valueAt(px),
      away = (/** @type {Bar} */ bar) => Math.max(bar.start - t, t - bar.stop, 0),
      near = barsOf(lane).filter((bar) => away(bar) <= s.valueAt(px + 3) - t);
    return near.length ? near.reduce((best, bar) => (away(bar) < away(best) ? bar : best)) : null;
  }
  // What is drawn of older time under the pointer, in words.
  /** @param {number} px @param {number} py */
  function shareAt(px, py) {
    const at = /** @type {Geometry} */ (s.geometry),
      { series } = s.state.header,
      { shares } = s.state.tables,
      t = s.valueAt(px),
      lane = at.rows.findIndex((row) => py >= row.y && py <= row.y + row.h),
      parts = /** @type {string[]} */ ([]);
    each(shares, [t, t], (i, low, high) => {
      if (shares.lane[i] !== lane || high <= t) return;
      const { held, computed } = shareOf(shares, i),
        { letter, name } = series[shares.series[i]],
        more = computed ? `, computing ${number(computed * 100, 2)} %` : "";
      if (!parts.length) parts.push(`${duration(low)} to ${duration(high)}`);
      parts.push(`${letter} ${name}: ${number(held * 100, 2)} %${more}`);
    });
    return parts;
  }
  /** @param {Bar | null} bar */
  function pick(bar) {
    selected = bar;
    marked = null;
    details.textContent = bar ? describe(bar).join(" · ") : "";
    canvas.setAttribute("aria-label", bar ? details.textContent : summary());
    const { series, name: source } = s.state.header;
    if (bar) {
      // Letters are somebody's, glyphs are of states.
      const { letter, name } = series[bar.series];
      if (/\w/.test(letter)) tell({ task: name, source });
      show(bar.start, bar.stop);
    }
    s.ask();
  }
  // A bar that was clicked, or on which Enter was pressed: who looks at it in Python is told, keys that pass it tell nobody.
  /** @param {Bar | null} bar */
  function choose(bar) {
    pick(bar);
    chooseIn(rendered.model, bar ? `${bar.lane}${bar.key}` : "");
  }
  // What is outside of the time shown comes into its middle.
  /** @param {number} start @param {number} stop */
  function show(start, stop) {
    if (!s.zoom || (stop >= s.zoom[0] && start <= s.zoom[1])) return;
    const half = (s.zoom[1] - s.zoom[0]) / 2,
      mid = (start + stop) / 2;
    s.zoom = [mid - half, mid + half];
  }
  const summary = () =>
    `${labelOf(s.state.header)}. Arrow keys select a bar${s.state.header.marks?.length ? ", m reads the marks" : ""}.`;

  // -- acting ---------------------------------------------------------------------------------------------------------
  /** @param {number} by */
  function step(by) {
    const was = selected,
      first = lanes().findIndex((_, i) => barsOf(i).length),
      list = barsOf(was ? was.lane : Math.max(0, first));
    if (!list.length) return;
    let i = by > 0 ? -1 : list.length;
    if (was) {
      i = list.findIndex((bar) => bar.key === was.key);
      if (i < 0) i = list.findIndex((bar) => bar.start >= was.start) - (by > 0 ? 1 : 0);
    }
    pick(list[Math.max(0, Math.min(list.length - 1, i + by))]);
  }
  /** @param {number} by */
  function stepMark(by) {
    const list = groupMarks(s.state.header.marks || [], s.geometry?.x || ((t) => t), Infinity, say),
      end = by > 0 ? -1 : list.length,
      i = marked === null ? end : list.findIndex((group) => group.t === marked),
      next = list[i + by];
    if (!next) return;
    marked = next.t;
    details.textContent = next.text;
    show(next.t, next.t);
    s.ask();
  }
  /** @param {number} by */
  function stepLane(by) {
    const t = selected ? selected.start : -Infinity,
      away = (/** @type {Bar} */ bar) => Math.abs(bar.start - t);
    for (let lane = (selected ? selected.lane : -1) + by; lanes()[lane]; lane += by) {
      const list = barsOf(lane);
      if (list.length) return pick(list.reduce((a, b) => (away(b) < away(a) ? b : a)));
    }
  }
  /** @param {number} by */
  function stepFromEnd(by) {
    selected = null;
    step(by);
  }
  const keys = {
    ArrowRight: () => step(1),
    ArrowLeft: () => step(-1),
    ArrowDown: () => stepLane(1),
    ArrowUp: () => stepLane(-1),
    m: () => stepMark(1),
    M: () => stepMark(-1),
    Home: () => stepFromEnd(1),
    End: () => stepFromEnd(-1),
    Enter: () => selected && choose(selected),
    Escape: () => pick(null),
    " ": () => {
      s.zoom = s.zoom ? null : range();
      s.ask();
    },
  };
  const markAt = (/** @type {number} */ px) =>
    s.groups.find((group) => Math.abs(group.at - px) <= NEAR);
  /** @param {number} px @param {number} py */
  function tip(px, py) {
    const bar = hit(px, py),
      mark = py < TOP || !bar ? markAt(px) : null;
    if (mark) return mark.text.replace(/(: |, )/g, "$1\n");
    return (bar ? describe(bar) : shareAt(px, py)).join("\n");
  }
  /** @param {number} px @param {number} py */
  function tap(px, py) {
    const mark = py < TOP ? markAt(px) : null;
    if (mark) details.textContent = mark.text;
    else choose(hit(px, py));
    if (!mark && !selected) details.textContent = shareAt(px, py).join(" · ");
  }
  /** @param {WheelEvent} e */
  function wheel(e) {
    if (document.activeElement !== canvas && !e.ctrlKey) return; // the page scrolls unless the picture has the focus
    e.preventDefault();
    if (s.geometry)
      s.magnify(
        e.deltaY > 0 ? 1.25 : 0.8,
        s.valueAt(e.clientX - canvas.getBoundingClientRect().left),
      );
  }
  // Spans to look at, where the picture says that they make sense; the newest edge stays.
  function renewSpans() {
    const { span, windows } = s.state.header,
      [low, high] = span || [0, 0],
      fits = Object.entries(SPANS).filter(([, n]) => windows && (n === null || n < high - low)),
      names = fits.map(([name]) => name);
    spans.hidden = names.length < 2;
    if (spans.dataset.key !== names.join()) {
      spans.dataset.key = names.join();
      spans.replaceChildren(
        ...names.map((name) =>
          textButton(
            `window-${name.replace(/\W/g, "")}`,
            name,
            name === "all" ? "the whole run" : `the last ${name}`,
            () => {
              span_s = SPANS[name];
              s.zoom = null;
              renewSpans();
              s.ask();
            },
          ),
        ),
      );
    }
    for (const node of spans.children)
      node.setAttribute("aria-pressed", String(SPANS[node.textContent] === span_s));
  }
  function changed() {
    renewSpans();
    const was = selected,
      same = was && barsOf(was.lane).find((bar) => bar.key === was.key);
    if (same) {
      selected = same;
      details.textContent = describe(same).join(" · ");
    }
    if (!selected && marked === null && Date.now() - wanted > 5000) {
      wanted = Date.now();
      canvas.setAttribute("aria-label", summary());
    }
    if (!frame && isLive()) frame = requestAnimationFrame(roll);
  }
  function roll() {
    frame = 0;
    if (s.gone.aborted || !s.state.dataAt || performance.now() - s.state.dataAt > 2100) return;
    s.ask();
    frame = requestAnimationFrame(roll);
  }
  canvas.addEventListener("wheel", guarded(rendered.model, wheel), { passive: false });
  const stop = () => cancelAnimationFrame(frame);
  const more = { chosen, whole, within };
  return s.start({ above: spans, height, draw, tip, tap, keys, changed, stop, ...more });
}
export default { render };
