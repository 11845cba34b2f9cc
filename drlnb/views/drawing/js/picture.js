// Shared by what draws: two pens with one set of strokes (canvas and SVG), ticks, table twin, export.

/** @param {CanvasRenderingContext2D} ctx */
function canvasPen(ctx) {
  const hatchOf = (
    /** @type {number} */ x,
    /** @type {number} */ y,
    /** @type {number} */ w,
    /** @type {number} */ h,
    /** @type {string} */ kind,
    /** @type {string} */ colour,
  ) => {
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, y, w, h);
    ctx.clip();
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (const [a, b, c, d] of strokes(x, y, w, h, kind)) {
      ctx.moveTo(a, b);
      ctx.lineTo(c, d);
    }
    ctx.stroke();
    ctx.restore();
  };
  return {
    /**
     * @param {number} x
     * @param {number} y
     * @param {number} w
     * @param {number} h
     * @param {string} fill
     */
    rect(x, y, w, h, fill, alpha = 1) {
      ctx.globalAlpha = alpha;
      ctx.fillStyle = fill;
      ctx.fillRect(x, y, w, h);
      ctx.globalAlpha = 1;
    },
    /**
     * @param {number} x
     * @param {number} y
     * @param {number} w
     * @param {number} h
     * @param {string} colour
     */
    frame(x, y, w, h, colour, width = 1) {
      ctx.strokeStyle = colour;
      ctx.lineWidth = width;
      ctx.strokeRect(x, y, w, h);
    },
    /** @param {Point[]} points @param {string} colour @param {number[]} [dash] */
    line(points, colour, width = 1, dash = []) {
      ctx.strokeStyle = colour;
      ctx.lineWidth = width;
      ctx.setLineDash(dash);
      ctx.lineJoin = "round";
      ctx.beginPath();
      let up = true;
      for (const [x, y] of points) {
        if (!known(y)) {
          up = true;
          continue;
        }
        if (up) ctx.moveTo(x, y);
        else ctx.lineTo(x, y);
        up = false;
      }
      ctx.stroke();
      ctx.setLineDash([]);
    },
    /** @param {Point[]} points @param {string} fill @param {number} alpha */
    area(points, fill, alpha) {
      if (points.length < 3) return;
      ctx.globalAlpha = alpha;
      ctx.fillStyle = fill;
      ctx.beginPath();
      points.forEach((/** @type {Point} */ [x, y], /** @type {number} */ i) =>
        i ? ctx.lineTo(x, y) : ctx.moveTo(x, y),
      );
      ctx.fill();
      ctx.globalAlpha = 1;
    },
    /** @param {string} s @param {number} x @param {number} y @param {string} colour */
    text(s, x, y, colour, align = "left", bold = false, size = 11) {
      ctx.fillStyle = colour;
      ctx.textAlign = /** @type {Align} */ (align);
      ctx.textBaseline = "middle";
      ctx.font = `${bold ? "600 " : ""}${size}px system-ui, sans-serif`;
      ctx.fillText(s, x, y);
    },
    hatch: hatchOf,
    /**
     * @param {number} x
     * @param {number} y
     * @param {number} w
     * @param {number} h
     * @param {(...args: any[]) => any} draw
     */
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
  for (const one of groups) {
    pen.line(
      [
        [one.at, top],
        [one.at, bottom],
      ],
      ink,
      one.marks.length > 1 ? 2 : 1,
      [4, 3],
    );
    if (one.label)
      pen.text(
        one.label,
        one.at + (one.side === "left" ? 3 : -3),
        top - 3,
        ink,
        one.side,
        one.marks.length > 1,
      );
  }
}
const NEAR = 6;
/** @param {number} x @param {number} y @param {number} w @param {number} h @param {string} kind */
function strokes(x, y, w, h, kind) {
  const lines = /** @type {number[][]} */ ([]),
    step = 6;
  if (kind === "-") for (let v = y + 3; v < y + h; v += step / 2) lines.push([x, v, x + w, v]);
  const first = Math.floor((x - h) / step) * step;
  for (let u = first; kind !== "-" && u < x + w; u += step) {
    if (kind !== "\\") lines.push([u, y + h, u + h, y]);
    if (kind !== "/") lines.push([u, y, u + h, y + h]);
  }
  return lines;
}
const escapeXml = (/** @type {any} */ s) =>
  String(s).replace(/[<>&"']/g, (c) => `&#${c.charCodeAt(0)};`);
/** @param {number} width @param {number} height @param {string} background */
function svgPen(width, height, background) {
  const out = /** @type {string[]} */ ([]),
    r = (/** @type {number} */ v) => (Number.isFinite(v) ? Math.round(v * 100) / 100 : 0);
  const open = () => `<rect width="${width}" height="${height}" fill="${escapeXml(background)}"/>`;
  const pen = {
    /**
     * @param {number} x
     * @param {number} y
     * @param {number} w
     * @param {number} h
     * @param {string} fill
     */
    rect(x, y, w, h, fill, alpha = 1) {
      out.push(
        `<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${escapeXml(fill)}"${alpha < 1 ? ` opacity="${alpha}"` : ""}/>`,
      );
    },
    /**
     * @param {number} x
     * @param {number} y
     * @param {number} w
     * @param {number} h
     * @param {string} colour
     */
    frame(x, y, w, h, colour, line = 1) {
      out.push(
        `<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="none" stroke="${escapeXml(colour)}" stroke-width="${line}"/>`,
      );
    },
    /** @param {Point[]} points @param {string} colour @param {number[]} [dash] */
    line(points, colour, line = 1, dash = []) {
      const d = points.reduce(
        (/** @type {any} */ p, /** @type {Point} */ [x, y], /** @type {number} */ i) =>
          known(y) ? `${p}${i && known(points[i - 1][1]) ? "L" : "M"}${r(x)} ${r(y)}` : p,
        "",
      );
      out.push(
        `<path d="${d}" fill="none" stroke="${escapeXml(colour)}" stroke-width="${line}"${dash.length ? ` stroke-dasharray="${dash}"` : ""}/>`,
      );
    },
    /** @param {Point[]} points @param {string} fill @param {number} alpha */
    area(points, fill, alpha) {
      if (points.length > 2)
        out.push(
          `<polygon points="${points.map((/** @type {Point} */ [x, y]) => `${r(x)},${r(y)}`).join(" ")}" fill="${escapeXml(fill)}" opacity="${alpha}"/>`,
        );
    },
    /** @param {string} s @param {number} x @param {number} y @param {string} colour */
    text(s, x, y, colour, align = "left", bold = false, size = 11) {
      const anchor = { left: "start", center: "middle", right: "end" }[
        /** @type {Align} */ (align)
      ];
      out.push(
        `<text x="${r(x)}" y="${r(y + size * 0.35)}" fill="${escapeXml(colour)}" text-anchor="${anchor}" font-size="${size}"${bold ? ' font-weight="600"' : ""} font-family="system-ui,sans-serif">${escapeXml(s)}</text>`,
      );
    },
    /**
     * @param {number} x
     * @param {number} y
     * @param {number} w
     * @param {number} h
     * @param {string} kind
     * @param {string} colour
     */
    hatch(x, y, w, h, kind, colour) {
      for (const [a, b, c, d] of strokes(x, y, w, h, kind)) {
        const low = Math.max(0, (x - Math.min(a, c)) / Math.max(1e-9, Math.abs(c - a))),
          high = Math.min(1, (x + w - a) / Math.max(1e-9, c - a));
        if (low < high)
          pen.line(
            [
              [a + low * (c - a), b + low * (d - b)],
              [a + high * (c - a), b + high * (d - b)],
            ],
            colour,
          );
      }
    },
    /**
     * @param {number} x
     * @param {number} y
     * @param {number} w
     * @param {number} h
     * @param {(...args: any[]) => any} draw
     */
    clip(x, y, w, h, draw) {
      const id = `c${out.length}`;
      out.push(
        `<clipPath id="${id}"><rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}"/></clipPath><g clip-path="url(#${id})">`,
      );
      draw();
      out.push("</g>");
    },
    done: (/** @type {string} */ title) =>
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img"><title>${escapeXml(title)}</title>${open()}${out.join("")}</svg>`,
  };
  return pen;
}
/** @param {number} span @param {number} most @param {boolean} clock */
function tickStep(span, most, clock) {
  const raw = span / Math.max(1, most);
  if (clock && raw > 0.5) {
    const step = [
      1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400,
    ].find((s) => s >= raw);
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
const tickText = (
  /** @type {any} */ v,
  /** @type {number} */ step,
  /** @type {string} */ kind = "",
) =>
  kind === "clock"
    ? axisSeconds(v, step)
    : Math.abs(v) >= 1e6
      ? `${number(v / 1e6)}M`
      : Math.abs(v) >= 1e4
        ? `${number(v / 1e3)}k`
        : number(v, 4);

// -- table twin -------------------------------------------------------------------------------------------------------
/** @param {Header} header @param {Tables} tables @param {Column} column @param {number} row */
function cellOf(header, tables, column, row, only = "") {
  const [table, name] = column.source.split("."),
    values = (tables[only || table] || {})[name],
    v = values && values[row];
  if (v === undefined) return null;
  if (column.kind === "name") return header.names[v];
  if (column.kind === "series") return header.series[v].name;
  if (column.kind === "lane") return header.lanes[v].label;
  if (column.kind === "fence") return v ? `#${v}` : "";
  return known(v) ? v * column.factor : null;
}
const sayCell = (/** @type {any} */ v) =>
  v === null ? "-" : typeof v === "string" ? v : number(v, 5);
const titleOf = (/** @type {Column} */ column) =>
  column.unit ? `${column.label} (${column.unit})` : column.label;
const drawnTable = (/** @type {Header} */ header) =>
  ((header.table && header.table[0] && header.table[0].source) || "bars.").split(".")[0];
/** @param {Header} header @param {Tables} tables */
function rowsOf(header, tables, last = Infinity) {
  const table = tables[drawnTable(header)] || { n: 0 },
    rows = /** @type {any[][]} */ ([]);
  for (let i = Math.max(0, table.n - last); i < table.n; i++)
    rows.push(header.table.map((/** @type {any} */ c) => cellOf(header, tables, c, i)));
  return rows;
}
/** @param {Header} header @param {Tables} tables */
function twinTable(header, tables, most = 200) {
  const total = (tables[drawnTable(header)] || { n: 0 }).n,
    rows = rowsOf(header, tables, most);
  const head = make(
    "tr",
    {},
    ...header.table.map((/** @type {any} */ c) =>
      make("th", { scope: "col", title: c.definition, text: titleOf(c) }),
    ),
  );
  const body = make(
    "tbody",
    {},
    ...rows
      .reverse()
      .map((row) =>
        make(
          "tr",
          {},
          ...row.map((v) =>
            make("td", { class: typeof v === "string" ? null : "drlnb-r", text: sayCell(v) }),
          ),
        ),
      ),
  );
  const note = `${header.origin}; ${total > most ? `newest ${most} of ${count(total)} rows, the CSV has all` : `${count(total)} rows, newest first`}`;
  return make(
    "div",
    { class: "drlnb-scroll", test: "twin", tabindex: "0" },
    make(
      "table",
      {},
      make("caption", { class: "drlnb-dim", text: note }),
      make("thead", {}, head),
      body,
    ),
  );
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
    header.table.map((/** @type {any} */ c) => csvCell(titleOf(c))).join(","),
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
  const twin = make("button", {
    type: "button",
    test: "twin-button",
    "aria-pressed": "false",
    text: "Table",
    title: "show the numbers as a table",
  });
  const renew = () =>
    place.replaceChildren(
      ...(open && state.header.table ? [twinTable(state.header, state.tables)] : []),
    );
  twin.addEventListener("click", () => {
    open = !open;
    twin.setAttribute("aria-pressed", String(open));
    renew();
  });
  const tool = (
    /** @type {string} */ label,
    /** @type {string} */ title,
    /** @type {(...args: any[]) => any} */ run,
  ) =>
    make("button", {
      type: "button",
      test: `export-${label.toLowerCase()}`,
      text: label,
      title,
      onclick: run,
    });
  const row = make(
    "div",
    { class: "drlnb-row", role: "group", "aria-label": "table and export" },
    twin,
    tool("CSV", "save the numbers as CSV", () =>
      save(`${name()}.csv`, "text/csv", csvOf(state.header, state.tables)),
    ),
    tool("JSON", "save the numbers with their definitions", () =>
      save(`${name()}.json`, "application/json", jsonOf(state.header, state.tables)),
    ),
    canvas &&
      tool("PNG", "save the picture", () =>
        canvas.toBlob((/** @type {Blob | null} */ blob) =>
          save(`${name()}.png`, "image/png", blob),
        ),
      ),
    paint &&
      tool("SVG", "save the picture for print", () =>
        save(`${name()}.svg`, "image/svg+xml", paint()),
      ),
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
  (header.numbers || []).map((/** @type {any} */ one, /** @type {number} */ i) => ({
    ...one,
    value: header.values[i],
  }));
/** @param {HTMLElement} place @param {Header} header */
function numbersRow(place, header) {
  place.replaceChildren(
    ...numbersOf(header).map((one) => {
      const text = withUnit(one.value, one.unit);
      return make(
        "span",
        { class: "drlnb-num", test: `number-${one.key}`, title: one.definition },
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
    ...(header.series || []).map((/** @type {Series} */ series, /** @type {number} */ i) =>
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
        make("span", { text: ` ${series.name}` }),
      ),
    ),
  );
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
