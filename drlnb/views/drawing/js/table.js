// Sortable rows with letter chips, progress, sparklines and buttons.  Rows are kept and changed in place: focus stays.

/** @type {Record<string, string>} */
const GLYPHS = {
  done: "✓",
  failed: "✕",
  paused: "‖",
  stopped: "■",
  computing: "●",
  collecting: "◌",
  queued: "…",
};

const SETTLED = new Set(["done", "failed", "stopped", "paused"]);

/** @param {number[]} values */
function spark(values) {
  const low = Math.min(...values),
    high = Math.max(...values),
    n = values.length,
    x = (/** @type {number} */ i) => (n > 1 ? (1 + (i / (n - 1)) * 82).toFixed(1) : 42),
    y = (/** @type {number} */ v) =>
      (high > low ? 20 - ((v - low) / (high - low)) * 18 : 11).toFixed(1),
    label = n ? `from ${number(values[0])} to ${number(values[n - 1])}` : "no returns yet",
    points = values.map((v, i) => `${x(i)},${y(v)}`).join(" "),
    line = svgNode("polyline", {
      points,
      fill: "none",
      stroke: "currentColor",
      "stroke-width": 1.4,
    });
  const svg = svgNode("svg", { width: 84, height: 22, role: "img", "aria-label": label });
  svg.append(line);
  return svg;
}
/** @param {string} tag @param {Record<string, any>} attrs */
function svgNode(tag, attrs) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attrs)) node.setAttribute(key, String(value));
  return node;
}
// A row is as wide as its box: minor columns go first, and where even that is too wide each row is a block with labels.
const cardsOf = (
  /** @type {any} */ grid,
) => `.drlnb ${grid},${grid} :is(thead,tbody){display:block}.drlnb ${grid} tr:not([hidden]){display:flex;flex-wrap:wrap;gap:0 12px;padding:6px 0;border-bottom:1px solid var(--drlnb-line)}.drlnb ${grid} :is(td,th){border:0;padding:1px 0;display:block}
.drlnb ${grid} td[data-label]:not([data-label=""])::before{content:attr(data-label) " ";color:var(--drlnb-dim);font-size:12px}.drlnb ${grid} .drlnb-do{flex:1 0 100%}.drlnb ${grid} :is(td[data-empty],th:not(:has(button)),.drlnb-m2,.drlnb-m3){display:none}`;
const TABLE_CSS = `.drlnb-bar{display:inline-block;vertical-align:middle;width:56px;height:6px;margin-right:6px;border-radius:3px;background:var(--drlnb-line);overflow:hidden}.drlnb-bar i{display:block;height:100%;background:var(--drlnb-accent)}
.drlnb td.drlnb-note{white-space:normal;max-width:none}.drlnb th button{border:0;background:none;padding:0;min-height:24px;font-weight:600;color:inherit}.drlnb td .drlnb-chip{margin-right:6px}.drlnb tr[aria-selected=true],.drlnb tr[aria-selected=true]>td{background:var(--drlnb-soft)}
.drlnb-acts{display:flex;gap:4px}.drlnb-acts button{padding:2px 6px}.drlnb-note{font-size:12px;white-space:normal;max-width:260px}.drlnb-box{container-type:inline-size;overflow-x:auto}.drlnb-name{display:inline-block;max-width:180px;overflow:hidden;text-overflow:ellipsis;vertical-align:bottom}
.drlnb-why{width:0;min-width:100%;white-space:normal}.drlnb-why b{color:var(--drlnb-bad);overflow-wrap:anywhere}.drlnb-why pre{white-space:pre-wrap;overflow-wrap:anywhere;max-height:220px;overflow:auto;margin:4px 0;font-size:12px}
@container (max-width:1040px){.drlnb-m3,.drlnb-acting .drlnb-m2{display:none}}@container (max-width:900px){.drlnb-m2,.drlnb-acting .drlnb-m1{display:none}.drlnb-name{max-width:120px}}@container (max-width:700px){.drlnb-m1{display:none}}
@container (max-width:560px){${cardsOf(".drlnb-grid")}}@container (max-width:790px){${cardsOf(".drlnb-grid.drlnb-acting")}}`;

function render(/** @type {Rendered} */ { model, el, signal }) {
  const gone = { aborted: false },
    root = rootOf(el, "table"),
    rows = /** @type {Map<string, any>} */ (new Map());
  const head = make("tr", { role: "row" }),
    body = make("tbody", { role: "rowgroup" });
  const grid = make(
    "table",
    { test: "tasks", class: "drlnb-grid", role: "table" },
    make("thead", { role: "rowgroup" }, head),
    body,
  );
  const numbers = make("div", { class: "drlnb-row", test: "numbers" });
  let sort = /** @type {{ key: string | null; down: boolean }} */ ({ key: null, down: false }),
    chosen = /** @type {string | null} */ (null),
    off = false,
    drawnHead = "";
  root.append(
    make("style", { text: COMMAND_CSS + TABLE_CSS }),
    numbers,
    make("div", { class: "drlnb-box" }, grid),
  );

  const table = () => state.tables.rows || /** @type {Table} */ ({ n: 0 });
  const cols = () => state.header.cols || [];
  const actions = () => state.header.actions || [];
  const rowKey = () => state.header.row_key || "task";
  const nameOf = (/** @type {number} */ i) => state.header.series[table()[rowKey()][i]].name;
  /** @param {any} row @param {string} [text] */
  function say(row, text) {
    if (text) Object.assign(row, { said: text, saidIn: undefined });
    fill(row);
  }
  const commands = commander(
    model,
    (key, text) => {
      const row = rows.get(key.split("\n")[0]);
      if (row) say(row, text);
    },
    gone,
  );

  function renewHead() {
    const text = JSON.stringify([cols(), state.header.actions, sort]);
    if (text === drawnHead) return;
    drawnHead = text;
    grid.classList.toggle("drlnb-acting", actions().length > 0);
    head.replaceChildren(...cols().map(headCell));
    if (!actions().length) return;
    const inner = make("span", { class: "drlnb-off", text: "actions" });
    head.append(make("th", { scope: "col", role: "columnheader" }, inner));
  }
  /** @param {Shown} c */
  function headCell(c) {
    const mine = sort.key === c.key,
      by = mine ? (sort.down ? "descending" : "ascending") : "none",
      label = mine ? `${c.label} ${sort.down ? "▾" : "▴"}` : c.label,
      title = state.header.table?.find((one) => one.source === `rows.${c.key}`)?.definition,
      plain = { scope: "col", role: "columnheader", class: classOf(c), title };
    if (c.kind === "spark") return make("th", plain, make("span", { text: c.label }));
    const button = textButton(`sort-${c.key}`, label, "", () => {
      sort = { key: c.key, down: mine && !sort.down };
      changed();
    });
    button.removeAttribute("title");
    return make("th", { ...plain, "aria-sort": by }, button);
  }
  /** @param {Shown} c */
  function classOf(c) {
    const right = ["number", "duration", "heat"].includes(c.kind),
      of = right ? "drlnb-r" : c.kind === "text" ? "drlnb-note" : "";
    return [of, c.minor ? `drlnb-m${c.minor}` : ""].filter(Boolean).join(" ") || null;
  }

  /** @param {string} name */
  function newRow(name) {
    const cells = cols().map((c) =>
        make("td", {
          class: classOf(c),
          role: "cell",
          "data-label": ["series", "state"].includes(c.kind) ? "" : c.label,
          test: `cell-${c.key}`,
        }),
      ),
      acts = make("div", { class: "drlnb-acts" }),
      note = make("div", { class: "drlnb-note", role: "status", test: "row-note" }),
      cause = make("b", { test: "cause" }),
      trace = make("pre", { tabindex: "0", test: "traceback" });
    const copy = make("button", {
      type: "button",
      test: "copy-traceback",
      text: "Copy traceback",
      onclick: () =>
        copyText(trace.textContent || "", trace).then((done) => {
          if (!gone.aborted) copy.textContent = done ? "Copied" : "Press Ctrl+C";
        }),
    });
    const why = make("div", { class: "drlnb-why", test: "failure" }, cause, trace, copy),
      cell = { role: "cell", class: "drlnb-do" },
      wide = make("td", { ...cell, colspan: String(cells.length + 1) }, why),
      more = make("tr", { role: "row", hidden: true }, wide),
      last = make("td", cell, acts, note);
    const tr = make(
      "tr",
      {
        test: "row",
        role: "row",
        "data-task": name,
        tabindex: "0",
        onclick: () => choose(name),
        onkeydown: (/** @type {KeyboardEvent} */ e) => keys(e, name),
      },
      ...cells,
    );
    const row = /** @type {any} */ ({ name, tr, more, cause, trace, cells, note, last, said: "" });
    row.renew = actionRow(
      acts,
      (action) => `${name}\n${action}`,
      () => ({ [rowKey()]: name }),
      commands,
      gone,
      (reason) => say(row, reason),
    );
    rows.set(name, row);
    return row;
  }
  // What the row can be asked for: bits of `can`; a reason stands for a button that is off, none for one without a place.
  /** @param {any} row @param {number} i @param {Table} t */
  function renewActions(row, i, t) {
    const { names, reasons } = state.header,
      now = names[t.state ? t.state[i] : 0];
    if (!actions().length) row.last.remove();
    else if (!row.last.parentNode) row.tr.append(row.last);
    const named = actions().map((action) => {
      const label = t[`${action.name}_label`];
      return label ? { ...action, label: names[label[i]] || action.label } : action;
    });
    row.renew(named, (/** @type {Action} */ action, /** @type {number} */ bit) => ({
      enabled: Boolean((t.can ? t.can[i] : 0) & (1 << bit)),
      reason: reasons?.[action.name]?.[now] ?? null,
      off,
    }));
  }
  /** @param {HTMLElement} cell @param {string} text */
  function put(cell, text) {
    if (cell.textContent !== text) cell.textContent = text;
  }
  // Changes what a cell holds if it is not made from this text already.
  /** @param {HTMLElement} cell @param {string} text @param {() => Node[]} nodes */
  function putNodes(cell, text, nodes) {
    if (cell.dataset.key === text) return;
    cell.dataset.key = text;
    cell.replaceChildren(...nodes());
  }
  /** @param {any} row @param {Shown} c @param {HTMLElement} cell @param {any} v */
  function fillCell(row, c, cell, v) {
    if (c.kind === "series") {
      const { letter, name, colour } = state.header.series[v];
      putNodes(cell, letter + name + colour, () => [
        chip(state.header.series[v]),
        make("span", { class: "drlnb-name", title: name, text: name }),
      ]);
    } else if (c.kind === "state") {
      const text = state.header.names[v];
      put(cell, `${GLYPHS[text] || "◌"} ${text}`);
      cell.classList.toggle("drlnb-bad", text === "failed");
    } else if (c.kind === "progress") {
      const of = table()[c.of][row.index],
        text = of ? `${count(v)}/${count(of)}` : count(v);
      putNodes(cell, text, () => {
        const bar = make("i");
        bar.style.width = `${of ? Math.min(100, (100 * v) / of) : 0}%`;
        const frame = make("span", { class: "drlnb-bar", "aria-hidden": "true" }, bar);
        return [frame, make("span", { text })];
      });
    } else if (c.kind === "duration") put(cell, duration(v));
    else if (c.kind === "heat") heatCell(row, c, cell, v);
    else if (c.kind === "spark") putNodes(cell, row.spark.join(), () => [spark(row.spark)]);
    else put(cell, c.kind === "text" ? state.header.names[v] : number(v, 4));
    const bare = c.kind === "spark" ? !row.spark.length : cell.textContent === "-";
    cell.toggleAttribute("data-empty", bare);
  }
  // The number, a shade of its size that any text can be read on, and a frame around the one that was changed last.
  /** @param {any} row @param {Shown} c @param {HTMLElement} cell @param {number} v */
  function heatCell(row, c, cell, v) {
    const heat = state.header.heat || { most: 0, row: "", key: "" },
      share = Number.isNaN(v) || !heat.most ? 0 : Math.round((45 * Math.abs(v)) / heat.most),
      newest = heat.row === row.name && heat.key === c.key;
    put(cell, number(v, 3));
    cell.style.background = `color-mix(in srgb, #0072b2 ${share}%, transparent)`;
    cell.style.outline = newest ? "2px solid var(--drlnb-fg)" : "";
    cell.style.outlineOffset = "-2px";
    cell.toggleAttribute("data-newest", newest);
  }
  /** @param {any} row */
  function fill(row) {
    const i = row.index,
      t = table(),
      text = (/** @type {string} */ key) => (t[key] ? state.header.names[t[key][i]] : "");
    cols().forEach((c, k) => fillCell(row, c, row.cells[k], t[c.key] && t[c.key][i]));
    renewActions(row, i, t);
    const mine = actions()
      .map((action) => commands.of(`${row.name}\n${action.name}`))
      .filter((asked) => asked?.text);
    const now = SETTLED.has(text("state")) ? text("state") : "at work";
    if (row.saidIn === undefined) row.saidIn = now;
    else if (row.saidIn !== now) Object.assign(row, { said: "", saidIn: now }); // it has begun, or ended
    put(row.note, mine.length ? mine[mine.length - 1]?.text || "" : row.said);
    row.note.classList.toggle(
      "drlnb-bad",
      mine.some((asked) => asked?.state === "failed"),
    );
    put(row.trace, text("failure"));
    put(row.cause, text("cause"));
    row.more.hidden = !(chosen === row.name && row.trace.textContent);
    row.tr.setAttribute("aria-selected", String(chosen === row.name));
  }
  function order() {
    const t = table(),
      all = [...Array(t.n).keys()],
      c = cols().find((one) => one.key === sort.key),
      way = sort.down ? -1 : 1;
    if (!c) return all;
    const value = (/** @type {number} */ i) => {
      const v = t[c.key][i];
      if (c.kind === "series") return nameOf(i);
      return ["state", "text"].includes(c.kind) ? state.header.names[v] : v;
    };
    return all.sort((a, b) => {
      const p = value(a),
        q = value(b),
        [first, second] = [p, q].map((v) => Number(Number.isNaN(v)));
      if (first || second) return first - second;
      return (p < q ? -way : p > q ? way : 0) || a - b;
    });
  }
  /** @param {string} name */
  function choose(name, others = true) {
    chosen = chosen === name && others ? null : name;
    chooseIn(model, chosen || "");
    rows.forEach(fill);
    if (others && chosen) tell({ task: chosen.split("\t")[0], source: state.header.name });
  }
  /** @param {KeyboardEvent} e @param {string} name */
  function keys(e, name) {
    if (/** @type {HTMLElement} */ (e.target).tagName === "BUTTON") {
      e.stopPropagation();
      return;
    }
    const row = rows.get(name),
      all = /** @type {HTMLElement[]} */ ([...body.querySelectorAll('[data-testid="row"]')]),
      i = all.indexOf(row.tr);
    const run = /** @type {Record<string, () => void>} */ ({
      Enter: () => choose(name),
      " ": () => choose(name),
      Escape: () => chosen && choose(chosen),
      ArrowDown: () => all[i + 1]?.focus(),
      ArrowUp: () => all[i - 1]?.focus(),
    })[e.key];
    if (run) {
      e.preventDefault();
      run();
    }
    if (e.key !== "Tab") e.stopPropagation();
  }
  // Only what stands elsewhere is moved, and nothing while a pointer is down: a click keeps its button.
  /** @param {HTMLElement[]} wanted */
  function place(wanted) {
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    wanted.forEach((node, i) => {
      if (body.children[i] !== node) body.insertBefore(node, body.children[i] || null);
    });
    if (active !== document.activeElement && body.contains(active)) active?.focus();
  }
  function changed() {
    if (!state.header.cols) return;
    renewHead();
    numbersRow(numbers, state.header);
    const t = table(),
      sparks = new Map(),
      s = state.tables.spark;
    for (let i = 0; s && i < s.n; i++) {
      if (!sparks.has(s.row[i])) sparks.set(s.row[i], []);
      sparks.get(s.row[i]).push(s.value[i]);
    }
    const wanted = /** @type {HTMLElement[]} */ ([]),
      names = new Set();
    // Several rows of one name are rows of their own.
    for (const i of order()) {
      const known = nameOf(i),
        name = names.has(known) ? `${known}\t${i}` : known,
        row = rows.get(name) || newRow(name);
      names.add(name);
      row.index = i;
      row.spark = sparks.get(t[rowKey()][i]) || [];
      fill(row);
      wanted.push(row.tr, row.more);
    }
    for (const [name, row] of rows)
      if (!names.has(name)) {
        row.tr.remove();
        row.more.remove();
        rows.delete(name);
      }
    if (!held) place(wanted);
    body.querySelector('[data-testid="empty"]')?.remove();
    if (!t.n) {
      const colspan = String(cols().length),
        text = state.header.sentence;
      body.append(
        make("tr", { test: "empty" }, make("td", { colspan, class: "drlnb-dim drlnb-note", text })),
      );
    }
    tools?.renew();
  }
  let held = false;
  const later = guarded(model, () => !gone.aborted && changed());
  function lift() {
    if (held) setTimeout(later);
    held = false;
  }
  body.addEventListener("pointerdown", () => {
    held = true;
  });
  for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, lift);
  let tools = /** @type {ReturnType<typeof toolRow> | null} */ (null),
    state = blank();
  const select = (/** @type {any} */ e) => {
    if (e.detail && e.detail.source !== state.header.name && rows.has(e.detail.task))
      choose(e.detail.task, false);
  };
  window.addEventListener("drlnb:select", select);
  state = feed(
    model,
    (s) => {
      state = s;
      changed();
    },
    (m) => commands.said(m),
  );
  tools = toolRow(root, state, null, null);
  const quiet = silence(state, (text) => {
    off = Boolean(text);
    rows.forEach(fill);
  }); // the shell above says it
  const unsteady = steady(root, numbers);
  return ending(gone, signal, () => {
    state.stop();
    quiet();
    unsteady();
    window.removeEventListener("drlnb:select", select);
    for (const end of ["pointerup", "pointercancel"]) window.removeEventListener(end, lift);
  });
}
export default { render };
