// Sortable rows with letter chips, progress, sparklines and buttons.  Rows are kept and changed in place: focus stays.

const GLYPHS = { done: "✓", failed: "✕", paused: "‖", stopped: "■", computing: "●", collecting: "◌", queued: "…" };

function spark(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const low = Math.min(...values), high = Math.max(...values), n = values.length;
  const points = values.map((v, i) => `${n > 1 ? (1 + (i / (n - 1)) * 82).toFixed(1) : 42},${(high > low ? 20 - ((v - low) / (high - low)) * 18 : 11).toFixed(1)}`);
  for (const [k, v] of [["width", 84], ["height", 22], ["role", "img"], ["aria-label", n ? `from ${number(values[0])} to ${number(values[n - 1])}` : "no returns yet"]]) svg.setAttribute(k, v);
  for (const [k, v] of [["points", points.join(" ")], ["fill", "none"], ["stroke", "currentColor"], ["stroke-width", 1.4]]) line.setAttribute(k, v);
  svg.append(line);
  return svg;
}
const TABLE_CSS = `.drlnb-bar{display:inline-block;vertical-align:middle;width:56px;height:6px;margin-right:6px;border-radius:3px;background:var(--drlnb-line);overflow:hidden}.drlnb-bar i{display:block;height:100%;background:var(--drlnb-accent)}
.drlnb th button{border:0;background:none;padding:0;min-height:24px;font-weight:600;color:inherit}.drlnb td .drlnb-chip{margin-right:6px}.drlnb tr[aria-selected=true] td{background:var(--drlnb-soft)}
.drlnb-acts{display:flex;gap:4px}.drlnb-note{font-size:12px;white-space:normal;max-width:260px}.drlnb-why{white-space:pre-wrap;max-height:180px;overflow:auto;margin:2px 0;font-size:12px}
@container (max-width:860px){.drlnb-minor{display:none}}.drlnb-box{container-type:inline-size;overflow-x:auto}`;

function render({ model, el, signal }) {
  const gone = { aborted: false }, root = rootOf(el, "table"), rows = new Map();
  const banner = make("div", { class: "drlnb-bad", role: "alert", test: "silence" }), head = make("tr"), body = make("tbody");
  const numbers = make("div", { class: "drlnb-row", test: "numbers" });
  let sort = { key: null, down: false }, chosen = null, off = false, drawnHead = "";
  root.append(make("style", { text: TABLE_CSS }), banner, numbers, make("div", { class: "drlnb-box" }, make("table", { test: "tasks" }, make("thead", {}, head), body)));

  const table = () => state.tables.rows || { n: 0 };
  const cols = () => state.header.cols || [];
  const nameOf = (i) => state.header.series[table()[state.header.row_key || "task"][i]].name;
  const commands = commander(model, (key, text) => { const [name] = key.split("\n"), row = rows.get(name); if (row) { if (text) row.said = text; fill(row); } }, gone);

  function renewHead() {
    const text = JSON.stringify([cols(), state.header.actions, sort]);
    if (text === drawnHead) return;
    drawnHead = text;
    head.replaceChildren(...cols().map((c) => {
      const by = sort.key === c.key ? (sort.down ? "descending" : "ascending") : "none";
      const label = by === "none" ? c.label : `${c.label} ${sort.down ? "▾" : "▴"}`;
      const inner = c.kind === "spark" ? null : make("button", { type: "button", test: `sort-${c.key}`, text: label, onclick: () => { sort = { key: c.key, down: sort.key === c.key && !sort.down }; changed(); } });
      return make("th", { scope: "col", "aria-sort": inner ? by : null, class: classOf(c), title: definition(c.key) }, inner || make("span", { text: c.label }));
    }), ...((state.header.actions || []).length ? [make("th", { scope: "col" }, make("span", { class: "drlnb-off", text: "actions" }))] : []));
  }
  const definition = (key) => ((state.header.table || []).find((c) => c.source === `rows.${key}`) || {}).definition;
  const classOf = (c) => [["number", "duration"].includes(c.kind) ? "drlnb-r" : "", c.minor ? "drlnb-minor" : ""].filter(Boolean).join(" ") || null;

  function newRow(name) {
    const cells = cols().map((c) => make("td", { class: classOf(c), test: `cell-${c.key}` })), acts = make("div", { class: "drlnb-acts" }), note = make("div", { class: "drlnb-note", role: "status", test: "row-note" });
    const why = make("pre", { class: "drlnb-why drlnb-bad", test: "failure" }), more = make("tr", { hidden: true }, make("td", { colspan: String(cells.length + 1) }, why));
    const tr = make("tr", { test: "row", "data-task": name, tabindex: "0", onclick: () => choose(name), onkeydown: (e) => keys(e, name) }, ...cells);
    const row = { name, tr, more, why, cells, note, said: "", buttons: null, acts };
    if ((state.header.actions || []).length) tr.append(make("td", {}, acts, note));
    row.buttons = (state.header.actions || []).map((action) => { const one = actionButton(action, `${name}\n${action.name}`, () => ({ [state.header.row_key || "task"]: name }), commands, gone); acts.append(one.node); return one; });
    rows.set(name, row);
    return row;
  }
  function put(cell, text) { if (cell.textContent !== text) cell.textContent = text; }
  function fill(row) {
    const i = row.index, t = table();
    cols().forEach((c, k) => {
      const cell = row.cells[k], v = t[c.key] && t[c.key][i];
      if (c.kind === "series") { const s = state.header.series[v], key = s.letter + s.name + s.colour; if (cell.dataset.key !== key) { cell.dataset.key = key; cell.replaceChildren(chip(s), make("span", { text: s.name })); } }
      else if (c.kind === "state") { const text = state.header.names[v]; put(cell, `${GLYPHS[text] || "◌"} ${text}`); cell.classList.toggle("drlnb-bad", text === "failed"); }
      else if (c.kind === "progress") { const of = t[c.of][i], text = of ? `${count(v)}/${count(of)}` : count(v); if (cell.dataset.key !== text) { cell.dataset.key = text; const bar = make("i"); bar.style.width = `${of ? Math.min(100, (100 * v) / of) : 0}%`; cell.replaceChildren(make("span", { class: "drlnb-bar", "aria-hidden": "true" }, bar), make("span", { text })); } }
      else if (c.kind === "duration") put(cell, duration(v));
      else if (c.kind === "spark") { const key = row.spark.join(); if (cell.dataset.key !== key) { cell.dataset.key = key; cell.replaceChildren(spark(row.spark)); } }
      else put(cell, number(v, 4));
    });
    const can = t.can ? t.can[i] : 0;
    row.buttons.forEach((one, bit) => one.show(Boolean(can & (1 << bit)), off));
    const mine = (state.header.actions || []).map((a) => commands.of(`${row.name}\n${a.name}`)).filter((one) => one && one.text);
    put(row.note, mine.length ? mine[mine.length - 1].text : row.said);
    row.note.classList.toggle("drlnb-bad", mine.some((one) => one.state === "failed"));
    put(row.why, t.failure ? state.header.names[t.failure[i]] : "");
    row.more.hidden = !(chosen === row.name && row.why.textContent);
    row.tr.setAttribute("aria-selected", String(chosen === row.name));
  }
  function order() {
    const t = table(), all = [...Array(t.n).keys()], c = cols().find((one) => one.key === sort.key);
    if (!c) return all;
    const value = (i) => (c.kind === "series" ? nameOf(i) : c.kind === "state" ? state.header.names[t[c.key][i]] : t[c.key][i]), way = sort.down ? -1 : 1;
    return all.sort((a, b) => { const p = value(a), q = value(b); if (Number.isNaN(p) || Number.isNaN(q)) return Number.isNaN(p) - Number.isNaN(q); return (p < q ? -way : p > q ? way : 0) || a - b; });
  }
  function choose(name, others = true) {
    chosen = chosen === name && others ? null : name;
    model.set("_selection", chosen || "");
    if (model.save_changes) model.save_changes();
    rows.forEach(fill);
    if (others && chosen) tell({ task: chosen, source: state.header.name });
  }
  function keys(e, name) {
    if (e.target.tagName === "BUTTON") { e.stopPropagation(); return; }
    const row = rows.get(name), all = [...body.querySelectorAll('[data-testid="row"]')], i = all.indexOf(row.tr);
    const run = { Enter: () => choose(name), " ": () => choose(name), Escape: () => chosen && choose(chosen), ArrowDown: () => all[i + 1] && all[i + 1].focus(), ArrowUp: () => all[i - 1] && all[i - 1].focus() }[e.key];
    if (run) { e.preventDefault(); run(); }
    if (e.key !== "Tab") e.stopPropagation();
  }
  function changed() {
    if (!state.header.cols) return;
    renewHead();
    numbersRow(numbers, state.header);
    const t = table(), sparks = new Map(), s = state.tables.spark;
    for (let i = 0; s && i < s.n; i++) { if (!sparks.has(s.row[i])) sparks.set(s.row[i], []); sparks.get(s.row[i]).push(s.value[i]); }
    const wanted = [], names = new Set();
    for (const i of order()) {
      const name = nameOf(i), row = rows.get(name) || newRow(name);
      names.add(name);
      row.index = i;
      row.spark = sparks.get(t[state.header.row_key || "task"][i]) || [];
      fill(row);
      wanted.push(row.tr, row.more);
    }
    for (const [name, row] of rows) if (!names.has(name)) { row.tr.remove(); row.more.remove(); rows.delete(name); }
    if (wanted.some((node, i) => body.children[i] !== node)) { const active = document.activeElement; body.append(...wanted); if (active && body.contains(active)) active.focus(); }
    if (!t.n && !body.children.length) body.append(make("tr", { test: "empty" }, make("td", { colspan: String(cols().length), class: "drlnb-dim", text: state.header.sentence })));
    else if (t.n) { const empty = body.querySelector('[data-testid="empty"]'); if (empty) empty.remove(); }
    if (tools) tools.renew();
  }
  let tools = null, state = { header: {}, tables: {} }, fed = null;
  const select = (e) => { if (e.detail && e.detail.source !== state.header.name && rows.has(e.detail.task)) choose(e.detail.task, false); };
  window.addEventListener("drlnb:select", select);
  fed = feed(model, (s) => { state = s; changed(); }, (m) => commands.said(m));
  state = fed;
  tools = toolRow(root, state, null, null);
  const quiet = silence(state, (text) => { off = Boolean(text); banner.textContent = text; rows.forEach(fill); });
  function cleanup() {
    if (gone.aborted) return;
    gone.aborted = true;
    fed.stop(); quiet(); window.removeEventListener("drlnb:select", select);
  }
  if (signal) signal.addEventListener("abort", cleanup, { once: true });
  return cleanup;
}
export default { render };
