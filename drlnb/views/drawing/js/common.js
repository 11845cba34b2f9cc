/// <reference path="types.d.ts" />
// Shared by every module: words, payload, colours, pens, tool row, commands.  No import, no export: modules made from a
// blob cannot import neighbours, so this text stands in front of each.  User text enters the page by textContent only.

// -- words (twin of views/words.py, tested against one golden file) ---------------------------------------------------
const known = (/** @type {any} */ v) => typeof v === "number" && Number.isFinite(v);
/** @param {number} v @param {number} digits */
function fixed(v, digits) {
  const scale = 10 ** digits,
    whole = Math.floor(Math.abs(v) * scale + 0.5 + 1e-9),
    sign = v < 0 && whole ? "-" : "";
  if (!digits) return sign + whole;
  return `${sign}${Math.floor(whole / scale)}.${String(whole % scale).padStart(digits, "0")}`;
}
/** @param {number} s */
function milliseconds(s) {
  if (!known(s)) return "-";
  return `${fixed(s * 1000, Math.abs(s * 1000) < 9.95 ? 1 : 0)} ms`;
}
/** @param {any} s @returns {string} */
function duration(s) {
  if (!known(s)) return "-";
  if (s < 0) return `-${duration(-s)}`;
  if (s < 0.9995) return milliseconds(s);
  if (s < 59.95) return `${fixed(s, 1)} s`;
  const whole = Math.floor(s + 0.5);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.floor(s / 60 + 0.5);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
/** @param {number} v */
function number(v, digits = 3) {
  if (!known(v)) return "-";
  if (v === 0) return "0";
  const places = digits - 1 - Math.floor(Math.log10(Math.abs(v)));
  if (places <= 0) return fixed(v, 0);
  const text = fixed(v, Math.min(places, 9));
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}
const percent = (/** @type {number} */ v) =>
  known(v) && known(v * 100) ? `${fixed(v * 100, 0)} %` : "-";
const count = (/** @type {number} */ n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
/** @param {number} s @param {number} step */
function axisSeconds(s, step) {
  if (step < 30 || s < 60)
    return fixed(s, step < 1 ? Math.min(12, Math.max(0, -Math.floor(Math.log10(step)))) : 0);
  const w = Math.floor(s + 0.5),
    two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  if (w < 3600) return `${Math.floor(w / 60)}:${two(w % 60)}`;
  return `${Math.floor(w / 3600)}:${two(Math.floor((w % 3600) / 60))}:${two(w % 60)}`;
}
/** @param {any} v @param {string} unit */
function withUnit(v, unit) {
  if (!known(v)) return "-";
  if (unit === "%") return percent(v);
  if (unit === "s") return duration(v);
  return `${number(v)}${unit === "x" ? "x" : unit ? ` ${unit}` : ""}`;
}

const labelOf = (/** @type {Header} */ header) =>
  `${header.sentence || ""} (${header.origin || ""})`;

// -- payload (views/payload.py) ---------------------------------------------------------------------------------------
/** @type {Record<string, any>} */
const KINDS = { t: Float32Array, f: Float32Array, u: Uint32Array, h: Uint16Array, b: Uint8Array };
/** @param {any} data */
function bytesOf(data) {
  if (!data) return new ArrayBuffer(0);
  const view = data.buffer
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);
  return view.slice().buffer; // a copy begins at 0, so every column is aligned
}
/** @param {Layout} layout @param {any} data */
function readTables(layout, data) {
  const raw = bytesOf(data),
    tables = /** @type {Tables} */ ({});
  let at = 0;
  for (const one of layout) {
    const table = (tables[one.table] = /** @type {Table} */ ({ n: one.n }));
    for (const [name, code] of one.columns) {
      const values = new KINDS[code](raw, at, one.n);
      at += Math.ceil((one.n * KINDS[code].BYTES_PER_ELEMENT) / 4) * 4;
      table[name] =
        code === "t"
          ? // whole microseconds, whatever they were relative to
            Float64Array.from(values, (v) => Math.round(((one.t0 || 0) + v) * 1e6) / 1e6)
          : values;
    }
  }
  return tables;
}
// A delta names a table's columns only if they are others than before.
/** @param {Layout} layout @param {any} known */
function named(layout, known) {
  for (const one of layout) known[one.table] = one.columns = one.columns || known[one.table];
  return layout;
}
/** @param {Tables} old @param {Layout} layout @param {Tables} tails */
function patchTables(old, layout, tails) {
  const tables = { ...old };
  for (const { table, drop, keep, columns } of layout) {
    const before = old[table],
      tail = tails[table],
      next = (tables[table] = /** @type {Table} */ ({ n: keep + tail.n }));
    for (const [name] of columns) {
      const joined = (next[name] = new tail[name].constructor(keep + tail.n));
      if (keep) joined.set(before[name].subarray(drop, drop + keep));
      joined.set(tail[name], keep);
    }
  }
  return tables;
}
/** @returns {State} */
const blank = () => ({
  header: /** @type {Header} */ ({}),
  tables: {},
  columns: {},
  seq: 0,
  newsAt: 0,
  lostAt: 0,
  dataAt: 0,
  stop: () => {},
});
// State of one picture: from the traits at once, then by messages; a gap in seq asks for a snapshot.
/**
 * @param {Model} model
 * @param {(state: State) => void} changed
 * @param {(m: Message) => void} said
 */
function feed(model, changed, said = () => {}) {
  const state = blank();
  const hello = () => model.send({ kind: "hello", seq: state.seq });
  /** @param {Header} header @param {any} data */
  function whole(header, data) {
    state.header = header;
    state.tables = readTables(named(header.layout || [], (state.columns = {})), data);
    changed(state);
  }
  function traits() {
    const text = model.get("_header");
    if (!text) return;
    const header = typeof text === "string" ? JSON.parse(text) : text;
    if ((header.seq || 0) < state.seq) return; // older than what messages have told
    state.seq = header.seq || state.seq;
    whole(header, model.get("_snapshot"));
  }
  /** @param {Message} m @param {any} buffers */
  function message(m, buffers) {
    if (!m || !m.kind) return;
    state.newsAt = Date.now();
    if (m.kind === "snapshot") {
      state.seq = m.seq;
      state.dataAt = performance.now();
      whole(m.header, buffers && buffers[0]);
    } else if (m.kind === "delta") {
      if (m.seq <= state.seq) return;
      if (m.seq !== state.seq + 1) return hello();
      state.seq = m.seq;
      state.dataAt = performance.now();
      Object.assign(state.header, m.header);
      const layout = named(m.layout, state.columns);
      state.tables = patchTables(state.tables, layout, readTables(layout, buffers && buffers[0]));
      changed(state);
    } else if (m.kind === "beat" && m.seq > state.seq) hello();
    said(m);
  }
  const safe = guarded(model, message),
    again = guarded(model, traits);
  model.on("msg:custom", safe);
  model.on("change:_snapshot", again);
  model.on("change:_header", again);
  again();
  hello();
  state.stop = () => {
    model.off("msg:custom", safe);
    model.off("change:_snapshot", again);
    model.off("change:_header", again);
  };
  return state;
}
// An error while drawing is told to Python and shown; the next news tries again.
/** @param {Model} model @param {(...args: any[]) => any} run */
function guarded(model, run) {
  return (/** @type {any[]} */ ...args) => {
    try {
      return run(...args);
    } catch (thrown) {
      const error = /** @type {Error | undefined} */ (thrown);
      model.send({
        kind: "js_error",
        text: String(error && error.message),
        details: String(error && error.stack),
      });
      console.error("drlnb", error);
    }
  };
}

// -- page -------------------------------------------------------------------------------------------------------------
/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} attrs
 * @param {...any} children
 */
function make(tag, attrs = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attrs)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "test") node.setAttribute("data-testid", value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter(Boolean));
  return node;
}
/** @param {string} test @param {string} text @param {string} title @param {(e: any) => void} onclick */
const textButton = (test, text, title, onclick) =>
  make("button", { type: "button", test, text, title, onclick });
const STYLE = `
.drlnb{--drlnb-bg:var(--jp-layout-color1,var(--vscode-editor-background,#fff));--drlnb-fg:var(--jp-ui-font-color1,var(--vscode-foreground,#1f2328));
--drlnb-dim:var(--jp-ui-font-color2,#59636e);--drlnb-line:var(--jp-border-color2,#d1d9e0);--drlnb-soft:var(--jp-layout-color2,#f3f5f7);--drlnb-accent:var(--jp-brand-color1,#0b63c5);
--drlnb-bad:var(--jp-error-color1,#b3261e);font:13px/1.45 var(--jp-ui-font-family,system-ui,sans-serif);color:var(--drlnb-fg);position:relative;min-width:0}
@media (prefers-color-scheme:dark){.drlnb{--drlnb-bg:var(--jp-layout-color1,var(--vscode-editor-background,#14181d));--drlnb-fg:var(--jp-ui-font-color1,var(--vscode-foreground,#e6edf3));
--drlnb-dim:var(--jp-ui-font-color2,#9aa7b4);--drlnb-line:var(--jp-border-color2,#3a434d);--drlnb-soft:var(--jp-layout-color2,#1d232a);--drlnb-accent:var(--jp-brand-color1,#6cb2ff);--drlnb-bad:var(--jp-error-color1,#ff8a80)}}
.drlnb [hidden]{display:none!important}.drlnb canvas{display:block;width:100%;outline:none;touch-action:pan-y;border-radius:4px}
.drlnb :is(canvas,button,tr,pre):focus-visible{outline:2px solid var(--drlnb-accent);outline-offset:1px}.drlnb canvas:focus-visible{outline-offset:-2px}
.drlnb-row{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:center;margin:4px 0}
.drlnb-num{white-space:nowrap}.drlnb-num b{font-weight:600;font-variant-numeric:tabular-nums}.drlnb-dim,.drlnb-num span{color:var(--drlnb-dim)}
.drlnb button{font:inherit;color:inherit;background:var(--drlnb-soft);border:1px solid var(--drlnb-line);border-radius:4px;min-height:32px;min-width:32px;padding:2px 9px;cursor:pointer}
.drlnb button:hover{border-color:var(--drlnb-accent)}.drlnb button[disabled],.drlnb button[aria-disabled=true]{opacity:.55;cursor:default}.drlnb button[aria-pressed=true]{border-color:var(--drlnb-accent);box-shadow:inset 0 0 0 1px var(--drlnb-accent)}
.drlnb-chip{display:inline-block;min-width:1.25em;padding:0 3px;text-align:center;border-radius:3px;font-weight:600;font-size:12px}
.drlnb-tip{position:absolute;z-index:9;pointer-events:none;max-width:280px;padding:4px 8px;border-radius:4px;background:var(--drlnb-bg);border:1px solid var(--drlnb-line);box-shadow:0 2px 8px #0004;white-space:pre-line;font-size:12px}
.drlnb-scroll{max-height:260px;overflow:auto;margin:4px 0;max-width:100%}.drlnb table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
.drlnb :is(th,td){padding:3px 8px;border-bottom:1px solid var(--drlnb-line);text-align:left;white-space:nowrap}.drlnb th{font-weight:600;color:var(--drlnb-dim)}.drlnb td.drlnb-r,.drlnb th.drlnb-r{text-align:right}
.drlnb-bad{color:var(--drlnb-bad)}.drlnb-off{position:absolute!important;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
[class*=drlnb-t-] .lm-TabBar-content{flex-wrap:wrap}[class*=drlnb-t-] .lm-TabBar-tab{flex:0 1 auto!important;min-width:auto!important}
@media (forced-colors:active){.drlnb{--drlnb-bg:Canvas;--drlnb-fg:CanvasText;--drlnb-dim:CanvasText;--drlnb-line:ButtonBorder;--drlnb-soft:Canvas;--drlnb-accent:Highlight;--drlnb-bad:CanvasText}
.drlnb :is(.drlnb-chip,.drlnb-bar,.drlnb-bar i){forced-color-adjust:none}.drlnb .drlnb-bar{border:1px solid CanvasText}.drlnb button[aria-disabled=true]{color:GrayText;border-color:GrayText;opacity:1}.drlnb button[aria-pressed=true]{outline:2px solid Highlight}.drlnb tr[aria-selected=true]{outline:2px solid Highlight;outline-offset:-2px}}
@media (prefers-reduced-motion:reduce){.drlnb *{animation:none!important;transition:none!important}}`;
/** @param {HTMLElement} el @param {string} name */
function rootOf(el, name) {
  const root = make("div", { class: "drlnb", test: name, "data-lm-suppress-shortcuts": "true" });
  el.append(make("style", { text: STYLE }), root);
  return root;
}
const colourOf = (/** @type {HTMLElement} */ root, /** @type {string} */ name) =>
  getComputedStyle(root).getPropertyValue(`--drlnb-${name}`).trim() || "#888";
/** @param {string} hex */
function inkOn(hex) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
  return 0.3 * r + 0.59 * g + 0.11 * b > 0.4 ? "#111" : "#fff";
}
/** @param {Series} series */
function chip(series) {
  const node = make("span", { class: "drlnb-chip", text: series.letter, "aria-hidden": "true" });
  node.style.background = series.colour;
  node.style.color = inkOn(series.colour);
  return node;
}
// Calls `run` when the theme, the width or the visibility changes; returns what ends that.
/** @param {HTMLElement} root @param {() => void} run */
function watch(root, run) {
  const theme = new MutationObserver(run),
    media = ["(prefers-color-scheme: dark)", "(forced-colors: active)"].map((query) =>
      matchMedia(query),
    );
  for (const node of [document.body, document.documentElement])
    theme.observe(node, {
      attributes: true,
      attributeFilter: ["data-jp-theme-light", "data-theme", "class"],
    });
  const size = new ResizeObserver(run);
  size.observe(root);
  media.forEach((one) => one.addEventListener("change", run));
  document.addEventListener("visibilitychange", run);
  return () => {
    theme.disconnect();
    size.disconnect();
    media.forEach((one) => one.removeEventListener("change", run));
    document.removeEventListener("visibilitychange", run);
  };
}
// Keeps parts as tall as they have been at this width: what stands below does not move when their words change.
/** @param {HTMLElement} root @param {...HTMLElement} parts */
function steady(root, ...parts) {
  let width = 0;
  const size = new ResizeObserver(() => {
    const anew = root.clientWidth !== width;
    width = root.clientWidth;
    for (const part of parts) {
      if (anew) part.style.minHeight = "";
      const { height } = part.getBoundingClientRect();
      if (height > (parseFloat(part.style.minHeight) || 0)) part.style.minHeight = `${height}px`;
    }
  });
  for (const node of [root, ...parts]) size.observe(node);
  return () => size.disconnect();
}
// Returns what ends a module, once: called, or by the signal of who shows it.
/** @param {Gone} gone @param {AbortSignal | undefined} signal @param {() => void} run */
function ending(gone, signal, run) {
  function cleanup() {
    if (gone.aborted) return;
    gone.aborted = true;
    run();
  }
  signal?.addEventListener("abort", cleanup, { once: true });
  return cleanup;
}
/** @param {Model} model @param {string} key */
function chooseIn(model, key) {
  model.set("_selection", key);
  model.save_changes?.();
}
const makeId = () => `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
const tell = (/** @type {object} */ detail) =>
  window.dispatchEvent(new CustomEvent("drlnb:select", { detail }));
