// Shared by what draws: two pens with one set of strokes (canvas and SVG), ticks, table twin, export.

/** @param {CanvasRenderingContext2D} ctx @returns {Pen} */
function canvasPen(ctx) {
  return {
    rect(x, y, w, h, fill, alpha = 1) {
      ctx.globalAlpha = alpha;
      ctx.fillStyle = fill;
      ctx.fillRect(x, y, w, h);
      ctx.globalAlpha = 1;
    },
    frame(x, y, w, h, colour, width = 1) {
      ctx.strokeStyle = colour;
      ctx.lineWidth = width;
      ctx.strokeRect(x, y, w, h);
    },
    line(points, colour, width = 1, dash = []) {
      ctx.strokeStyle = colour;
      ctx.lineWidth = width;
      ctx.setLineDash(dash);
      ctx.lineJoin = "round";
      ctx.beginPath();
      points.forEach(([x, y], i) => {
        if (!known(y)) return;
        if (i && known(points[i - 1][1])) ctx.lineTo(x, y);
        else ctx.moveTo(x, y);
      });
      ctx.stroke();
      ctx.setLineDash([]);
    },
    area(points, fill, alpha) {
      if (points.length < 3) return;
      ctx.globalAlpha = alpha;
      ctx.fillStyle = fill;
      ctx.beginPath();
      for (const [x, y] of points) ctx.lineTo(x, y); // the first one begins the path
      ctx.fill();
      ctx.globalAlpha = 1;
    },
    text(s, x, y, colour, align = "left", bold = false, size = 11) {
      ctx.fillStyle = colour;
      ctx.textAlign = align;
      ctx.textBaseline = "middle";
      ctx.font = `${bold ? "600 " : ""}${size}px system-ui, sans-serif`;
      ctx.fillText(s, x, y);
    },
    clip(x, y, w, h, draw) {
      ctx.save();
      ctx.beginPath();
      ctx.rect(x, y, w, h);
      ctx.clip();
      draw();
      ctx.restore();
    },
  };
}
// Changed settings: upright lines.  Marks within a few pixels are one group: one line, their number, and all of them in words.  A label that would run
// into the next line is left out; that of the last one stands on its left where there is no room on its right.
/**
 * @param {Mark[]} marks
 * @param {(t: number) => number} x
 * @param {(t: number) => string} say
 */
function groupMarks(marks, x, right = Infinity, say = duration) {
  const groups = /** @type {MarkGroup[]} */ ([]);
  for (const mark of [...marks].sort((a, b) => a.t - b.t)) {
    const at = x(mark.t),
      last = groups[groups.length - 1];
    if (last && at - last.at <= NEAR) last.marks.push(mark);
    else groups.push({ at, t: mark.t, marks: [mark], label: "", side: "left", text: "" });
  }
  let ends = -Infinity;
  groups.forEach((group, i) => {
    const n = group.marks.length,
      label = n > 1 ? `${n}×` : group.marks[0].label,
      size = 6.2 * label.length + 6,
      next = i + 1 < groups.length ? groups[i + 1].at : Infinity;
    if (group.at + size <= Math.min(next, right)) group.label = label;
    else if (next === Infinity && group.at - size >= ends)
      Object.assign(group, { label, side: "right" });
    ends = group.label && group.side === "left" ? group.at + size : group.at;
    group.text = `${n > 1 ? `${n} marks` : "mark"} at ${say(group.t)}: ${group.marks.map((mark) => mark.said || mark.label).join("; ")}`;
  });
  return groups;
}
/**
 * @param {Pen} pen
 * @param {MarkGroup[]} groups
 * @param {number} top
 * @param {number} bottom
 * @param {string} ink
 */
function strokeMarks(pen, groups, top, bottom, ink) {
  for (const { at, marks, label, side } of groups) {
    const many = marks.length > 1;
    pen.line(segment(at, top, at, bottom), ink, many ? 2 : 1, [4, 3]);
    if (label) pen.text(label, at + (side === "left" ? 3 : -3), top - 3, ink, side, many);
  }
}
const short = (/** @type {string} */ text, /** @type {number} */ room) => {
  const most = Math.max(3, Math.floor((room - 10) / 7));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
};
const marksIn = (/** @type {Header} */ header, /** @type {Point} */ [low, high]) =>
  (header.marks || []).filter((mark) => mark.t >= low && mark.t <= high);
const NEAR = 6;
/** @param {number} a @param {number} b @param {number} c @param {number} d @returns {Point[]} */
const segment = (a, b, c, d) => [
  [a, b],
  [c, d],
];
/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {string} kind
 * @param {string} colour
 */
function hatch(pen, x, y, w, h, kind, colour) {
  const points = /** @type {Point[]} */ ([]),
    step = 6;
  /** @param {number} a @param {number} b @param {number} c @param {number} d */
  const add = (a, b, c, d) => points.push(...segment(a, b, c, d), [NaN, NaN]);
  if (kind === "-") for (let v = y + 3; v < y + h; v += step / 2) add(x, v, x + w, v);
  const first = Math.floor((x - h) / step) * step;
  for (let u = first; kind !== "-" && u < x + w; u += step) {
    if (kind !== "\\") add(u, y + h, u + h, y);
    if (kind !== "/") add(u, y, u + h, y + h);
  }
  pen.clip(x, y, w, h, () => pen.line(points, colour));
}
const escapeXml = (/** @type {any} */ s) =>
  String(s).replace(/[<>&"']/g, (c) => `&#${c.charCodeAt(0)};`);
/** @param {Record<string, any>} attrs */
const xml = (attrs) =>
  Object.entries(attrs)
    .map(([name, v]) => ` ${name}="${escapeXml(known(v) ? Math.round(v * 100) / 100 : v)}"`)
    .join("");
/**
 * @param {number} width
 * @param {number} height
 * @param {string} background
 * @returns {Pen & { done(title: string): string }}
 */
function svgPen(width, height, background) {
  const out = /** @type {string[]} */ ([]);
  /** @param {string} tag @param {Record<string, any>} attrs */
  const add = (tag, attrs, text = "") => out.push(`<${tag}${xml(attrs)}>${text}</${tag}>`);
  const path = (/** @type {Point[]} */ points) =>
    points
      .map(([x, y], i) => {
        const way = i && known(points[i - 1][1]) ? "L" : "M";
        return known(y) ? `${way}${Math.round(x * 100) / 100} ${Math.round(y * 100) / 100}` : "";
      })
      .join("");
  /** @type {Pen} */
  const pen = {
    rect(x, y, w, h, fill, opacity = 1) {
      add("rect", { x, y, width: w, height: h, fill, opacity });
    },
    frame(x, y, w, h, stroke, line = 1) {
      add("rect", { x, y, width: w, height: h, fill: "none", stroke, "stroke-width": line });
    },
    line(points, stroke, line = 1, dash = []) {
      const dashed = dash.length ? { "stroke-dasharray": dash } : {};
      add("path", { d: path(points), fill: "none", stroke, "stroke-width": line, ...dashed });
    },
    area(points, fill, opacity) {
      if (points.length > 2) add("path", { d: `${path(points)}Z`, fill, opacity });
    },
    text(s, x, y, fill, align = "left", bold = false, size = 11) {
      const anchor = { left: "start", center: "middle", right: "end" }[align],
        weight = bold ? { "font-weight": 600 } : {},
        font = { "font-size": size, ...weight, "font-family": "system-ui,sans-serif" };
      const where = { x, y: y + size * 0.35, "text-anchor": anchor };
      add("text", { ...where, fill, ...font }, escapeXml(s));
    },
    clip(x, y, w, h, draw) {
      const id = `c${out.length}`;
      out.push(`<clipPath id="${id}"><rect${xml({ x, y, width: w, height: h })}/></clipPath>`);
      out.push(`<g clip-path="url(#${id})">`);
      draw();
      out.push("</g>");
    },
  };
  pen.rect(0, 0, width, height, background);
  return {
    ...pen,
    done(title) {
      const box = xml({ width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
      return `<svg xmlns="http://www.w3.org/2000/svg"${box}><title>${escapeXml(title)}</title>${out.join("")}</svg>`;
    },
  };
}
const CLOCK = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
/** @param {number} span @param {number} most @param {boolean} clock */
function tickStep(span, most, clock) {
  const raw = span / Math.max(1, most);
  if (clock && raw > 0.5) {
    const step = CLOCK.find((s) => s >= raw);
    if (step) return step;
  }
  const ten = 10 ** Math.floor(Math.log10(raw)),
    rest = raw / ten;
  return (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10) * ten;
}
/** @param {number} low @param {number} high @param {number} most */
function ticks(low, high, most, clock = false) {
  if (!(high > low)) return { step: 1, at: [low] };
  const step = tickStep(high - low, most, clock),
    at = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    at.push(i * step || 0);
  return { step, at };
}
/** @param {number} v @param {number} step */
function tickText(v, step, kind = "") {
  if (kind === "clock") return axisSeconds(v, step);
  if (Math.abs(v) >= 1e6) return `${number(v / 1e6)}M`;
  return Math.abs(v) >= 1e4 ? `${number(v / 1e3)}k` : number(v, 4);
}

// -- table twin -------------------------------------------------------------------------------------------------------
/**
 * @param {Header} header
 * @param {Tables} tables
 * @param {Column} column
 * @param {number} row
 * @returns {any}
 */
function cellOf(header, tables, column, row, only = "") {
  const [table, name] = column.source.split("."),
    values = (tables[only || table] || {})[name],
    v = values && values[row];
  if (v === undefined) return null;
  if (column.kind === "name") return header.names[v];
  if (column.kind === "series") return header.series[v].name;
  if (column.kind === "lane") return header.lanes?.[v].label;
  if (column.kind === "fence") return v ? `#${v}` : "";
  return known(v) ? v * column.factor : null;
}
const sayCell = (/** @type {any} */ v) =>
  v === null ? "-" : typeof v === "string" ? v : number(v, 5);
const titleOf = (/** @type {Column} */ column) =>
  column.unit ? `${column.label} (${column.unit})` : column.label;
const drawnTable = (/** @type {Header} */ header) =>
  (header.table?.[0]?.source || "bars.").split(".")[0];
/** @param {Header} header @param {Tables} tables */
function rowsOf(header, tables, last = Infinity) {
  const table = tables[drawnTable(header)] || { n: 0 },
    rows = /** @type {any[][]} */ ([]);
  for (let i = Math.max(0, table.n - last); i < table.n; i++)
    rows.push(header.table.map((column) => cellOf(header, tables, column, i)));
  return rows;
}
/** @param {Header} header @param {Tables} tables */
function twinTable(header, tables, most = 200) {
  const total = (tables[drawnTable(header)] || { n: 0 }).n,
    rows = rowsOf(header, tables, most);
  const head = header.table.map((c) =>
    make("th", { scope: "col", title: c.definition, text: titleOf(c) }),
  );
  const cell = (/** @type {any} */ v) =>
    make("td", { class: typeof v === "string" ? null : "drlnb-r", text: sayCell(v) });
  const body = rows.reverse().map((row) => make("tr", {}, ...row.map(cell)));
  const all = `${count(total)} rows`,
    shown = total > most ? `newest ${most} of ${all}, the CSV has all` : `${all}, newest first`;
  const table = make(
    "table",
    {},
    make("caption", { class: "drlnb-dim", text: `${header.origin}; ${shown}` }),
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...body),
  );
  return make("div", { class: "drlnb-scroll", test: "twin", tabindex: "0" }, table);
}
/** @param {any} v */
function csvCell(v) {
  if (v === null) return "";
  const text = typeof v === "string" && /^[=+\-@\t\r]/.test(v) ? `'${v}` : String(v);
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
const csvOf = (/** @type {Header} */ header, /** @type {Tables} */ tables) =>
  [
    `# ${header.name}, ${header.origin}`,
    header.table.map((column) => csvCell(titleOf(column))).join(","),
    ...rowsOf(header, tables).map((row) => row.map(csvCell).join(",")),
  ].join("\n") + "\n";
const jsonOf = (/** @type {Header} */ header, /** @type {Tables} */ tables) =>
  JSON.stringify({
    name: header.name,
    origin: header.origin,
    sentence: header.sentence,
    columns: header.table,
    numbers: numbersOf(header),
    rows: rowsOf(header, tables),
  });
/** @param {string} name @param {string} type @param {any} data */
function save(name, type, data) {
  const link = make("a", {
    download: name,
    href: URL.createObjectURL(data instanceof Blob ? data : new Blob([data], { type })),
  });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
// Row of small buttons under a picture: table twin, CSV, JSON, and PNG and SVG where it is drawn.
/**
 * @param {HTMLElement} root
 * @param {State} state
 * @param {(() => string) | null} paint
 * @param {HTMLCanvasElement | null} canvas
 */
function toolRow(root, state, paint, canvas) {
  const place = make("div"),
    name = () => (state.header.name || "view").replace(/\W+/g, "-");
  let open = false;
  const twin = textButton("twin-button", "Table", "show the numbers as a table", () => {
    open = !open;
    twin.setAttribute("aria-pressed", String(open));
    renew();
  });
  twin.setAttribute("aria-pressed", "false");
  const renew = () =>
    place.replaceChildren(
      ...(open && state.header.table ? [twinTable(state.header, state.tables)] : []),
    );
  /** @param {string} label @param {string} title @param {string} type @param {() => any} text */
  const tool = (label, title, type, text) =>
    textButton(`export-${label.toLowerCase()}`, label, title, () =>
      save(`${name()}.${label.toLowerCase()}`, type, text()),
    );
  const row = make(
    "div",
    { class: "drlnb-row", role: "group", "aria-label": "table and export" },
    twin,
    tool("CSV", "save the numbers as CSV", "text/csv", () => csvOf(state.header, state.tables)),
    tool("JSON", "save the numbers with their definitions", "application/json", () =>
      jsonOf(state.header, state.tables),
    ),
    canvas &&
      textButton("export-png", "PNG", "save the picture", () =>
        canvas.toBlob((blob) => save(`${name()}.png`, "image/png", blob)),
      ),
    paint && tool("SVG", "save the picture for print", "image/svg+xml", paint),
  );
  root.append(row, place);
  let at = 0,
    later = /** @type {any} */ (0);
  const due = () => {
    later = 0;
    at = Date.now();
    renew();
  };
  // At most once a second, and the last change is never left out.
  return {
    row,
    renew() {
      if (open && !later) later = setTimeout(due, Math.max(0, at + 1000 - Date.now()));
    },
  };
}
/** @param {Header} header @returns {Numbered[]} */
const numbersOf = (header) =>
  (header.numbers || []).map((one, i) => ({ ...one, value: header.values[i] }));
/** @param {HTMLElement} place @param {Header} header @param {Record<string, number | null>} [other] */
function numbersRow(place, header, other = {}) {
  const shown = numbersOf(header).map((one) =>
    one.key in other ? { ...one, value: other[one.key] } : one,
  );
  place.replaceChildren(
    ...shown
      .filter((one) => other[one.key] !== null)
      .map((one) => {
        const text = withUnit(one.value, one.unit);
        return make(
          "span",
          {
            class: header.bad?.includes(one.key) ? "drlnb-num drlnb-bad" : "drlnb-num",
            test: `number-${one.key}`,
            title: one.definition,
          },
          make("span", { text: `${one.label} ` }),
          make("b", { text }),
        );
      }),
  );
}
/**
 * @param {HTMLElement} place
 * @param {Header} header
 * @param {number | null} focus
 * @param {(i: number | null) => void} pick
 */
function legendRow(place, header, focus, pick) {
  place.replaceChildren(
    ...(header.series || []).map((series, i) =>
      make(
        "button",
        {
          type: "button",
          test: `legend-${series.letter}`,
          "aria-pressed": String(focus === i),
          title: "show this one alone in strong colours",
          onclick: () => pick(focus === i ? null : i),
        },
        chip(series),
        ...(series.hatch ? [swatch(series)] : []),
        make("span", { text: ` ${series.name}` }),
      ),
    ),
  );
}
// What is hatched is so in the legend, too, beside its letter.
/** @param {Series} series */
function swatch({ colour, hatch }) {
  const node = make("span", { class: "drlnb-chip", text: "\u00a0", "aria-hidden": "true" }),
    angles = { "/": [135], "\\": [45], x: [45, 135], "-": [0] }[hatch] || [],
    strokes = `${inkOn(colour)} 0 1px,transparent 1px 4px`;
  node.style.background = [
    ...angles.map((angle) => `repeating-linear-gradient(${angle}deg,${strokes})`),
    colour,
  ].join();
  return node;
}
// A canvas that fills the width of its root; `draw(pen, width, height)` is called before the next frame, when visible.
/**
 * @param {HTMLElement} root
 * @param {(width: number) => number} heightOf
 * @param {(pen: Pen, width: number, height: number) => void} draw
 * @param {string} label
 * @returns {Easel}
 */
function easel(root, heightOf, draw, label) {
  const canvas = make("canvas", {
    tabindex: "0",
    role: "img",
    test: "canvas",
    "aria-label": label,
  });
  let asked = 0;
  function now() {
    asked = 0;
    const width = Math.floor(root.clientWidth);
    if (!width || document.hidden) return;
    const height = heightOf(width),
      ratio = window.devicePixelRatio || 1;
    if (
      canvas.width !== Math.round(width * ratio) ||
      canvas.height !== Math.round(height * ratio)
    ) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.fillStyle = colourOf(root, "bg");
    ctx.fillRect(0, 0, width, height);
    draw(canvasPen(ctx), width, height);
  }
  canvas.draw = now; // at once, for paper
  return {
    canvas,
    ask() {
      if (!asked) asked = requestAnimationFrame(now);
    },
    svg(title) {
      const w = Math.floor(root.clientWidth) || 760,
        h = heightOf(w),
        pen = svgPen(w, h, colourOf(root, "bg"));
      draw(pen, w, h);
      return pen.done(title);
    },
    stop() {
      cancelAnimationFrame(asked);
    },
  };
}
