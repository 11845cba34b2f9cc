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
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"),
    line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const low = Math.min(...values),
    high = Math.max(...values),
    n = values.length;
  const points = values.map(
    (/** @type {any} */ v, /** @type {number} */ i) =>
      `${n > 1 ? (1 + (i / (n - 1)) * 82).toFixed(1) : 42},${(high > low ? 20 - ((v - low) / (high - low)) * 18 : 11).toFixed(1)}`,
  );
  for (const [k, v] of [
    ["width", 84],
    ["height", 22],
    ["role", "img"],
    ["aria-label", n ? `from ${number(values[0])} to ${number(values[n - 1])}` : "no returns yet"],
  ])
    svg.setAttribute(String(k), String(v));
  for (const [k, v] of [
    ["points", points.join(" ")],
    ["fill", "none"],
    ["stroke", "currentColor"],
    ["stroke-width", 1.4],
  ])
    line.setAttribute(String(k), String(v));
  svg.append(line);
  return svg;
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
  /** @returns {any[]} */
  const cols = () => state.header.cols || [];
  const nameOf = (/** @type {number} */ i) =>
    state.header.series[table()[state.header.row_key || "task"][i]].name;
  const commands = commander(
    model,
    (key, text) => {
      const [name] = key.split("\n"),
        row = rows.get(name);
      if (row) {
        if (text) {
          row.said = text;
          row.saidIn = undefined;
        }
        fill(row);
      }
    },
    gone,
  );

  function renewHead() {
    const text = JSON.stringify([cols(), state.header.actions, sort]);
    if (text === drawnHead) return;
    drawnHead = text;
    grid.classList.toggle("drlnb-acting", (state.header.actions || []).length > 0);
    head.replaceChildren(
      ...cols().map((c) => {
        const by = sort.key === c.key ? (sort.down ? "descending" : "ascending") : "none";
        const label = by === "none" ? c.label : `${c.label} ${sort.down ? "▾" : "▴"}`;
        const inner =
          c.kind === "spark"
            ? null
            : make("button", {
                type: "button",
                test: `sort-${c.key}`,
                text: label,
                onclick: () => {
                  sort = { key: c.key, down: sort.key === c.key && !sort.down };
                  changed();
                },
              });
        return make(
          "th",
          {
            scope: "col",
            role: "columnheader",
            "aria-sort": inner ? by : null,
            class: classOf(c),
            title: definition(c.key),
          },
          inner || make("span", { text: c.label }),
        );
      }),
      ...((state.header.actions || []).length
        ? [
            make(
              "th",
              { scope: "col", role: "columnheader" },
              make("span", { class: "drlnb-off", text: "actions" }),
            ),
          ]
        : []),
    );
  }
  const definition = (/** @type {string} */ key) =>
    ((state.header.table || []).find((/** @type {any} */ c) => c.source === `rows.${key}`) || {})
      .definition;
  const classOf = (/** @type {any} */ c) =>
    [
      ["number", "duration", "percent"].includes(c.kind)
        ? "drlnb-r"
        : c.kind === "text"
          ? "drlnb-note"
          : "",
      c.minor ? `drlnb-m${c.minor}` : "",
    ]
      .filter(Boolean)
      .join(" ") || null;

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
      note = make("div", { class: "drlnb-note", role: "status", test: "row-note" });
    const cause = make("b", { test: "cause" }),
      trace = make("pre", { tabindex: "0", test: "traceback" }),
      why = make("div", { class: "drlnb-why", test: "failure" });
    const copy = make("button", {
      type: "button",
      test: "copy-traceback",
      text: "Copy traceback",
      onclick: () =>
        copyText(trace.textContent || "", trace).then((done) => {
          if (!gone.aborted) copy.textContent = done ? "Copied" : "Press Ctrl+C";
        }),
    });
    why.append(cause, trace, copy);
    const more = make(
        "tr",
        { role: "row", hidden: true },
        make("td", { colspan: String(cells.length + 1), role: "cell", class: "drlnb-do" }, why),
      ),
      last = make("td", { class: "drlnb-do", role: "cell" }, acts, note);
    const tr = make(
      "tr",
      {
        test: "row",
        role: "row",
        "data-task": name,
        tabindex: "0",
        onclick: () => choose(name),
        onkeydown: (/** @type {any} */ e) => keys(e, name),
      },
      ...cells,
    );
    const row = /** @type {any} */ ({
      name,
      tr,
      more,
      why,
      cause,
      trace,
      cells,
      note,
      last,
      said: "",
    });
    row.renew = actionRow(
      acts,
      (action) => `${name}\n${action}`,
      () => ({ [state.header.row_key || "task"]: name }),
      commands,
      gone,
      (why_) => {
        row.said = why_;
        row.saidIn = undefined;
        fill(row);
      },
    );
    rows.set(name, row);
    return row;
  }
  // What the row can be asked for: bits of `can`; a reason stands for a button that is off, none for one without a place.
  /** @param {any} row @param {number} i @param {Table} t */
  function renewActions(row, i, t) {
    const actions = state.header.actions || [],
      reasons = state.header.reasons || {},
      now = state.header.names[t.state ? t.state[i] : 0];
    if (actions.length && !row.last.parentNode) row.tr.append(row.last);
    if (!actions.length) row.last.remove();
    const named = actions.map((/** @type {Action} */ action) => {
      const label = t[`${action.name}_label`];
      return label ? { ...action, label: state.header.names[label[i]] || action.label } : action;
    });
    row.renew(named, (/** @type {Action} */ action, /** @type {number} */ bit) => {
      const reason = (reasons[action.name] || {})[now];
      return {
        enabled: Boolean((t.can ? t.can[i] : 0) & (1 << bit)),
        reason: reason === undefined ? null : reason,
        off,
      };
    });
  }
  /** @param {HTMLElement} cell @param {string} text */
  function put(cell, text) {
    if (cell.textContent !== text) cell.textContent = text;
  }
  /** @param {any} row */
  function fill(row) {
    const i = row.index,
      t = table();
    cols().forEach((c, k) => {
      const cell = row.cells[k],
        v = t[c.key] && t[c.key][i];
      if (c.kind === "series") {
        const s = state.header.series[v],
          key = s.letter + s.name + s.colour;
        if (cell.dataset.key !== key) {
          cell.dataset.key = key;
          cell.replaceChildren(
            chip(s),
            make("span", { class: "drlnb-name", title: s.name, text: s.name }),
          );
        }
      } else if (c.kind === "state") {
        const text = state.header.names[v];
        put(cell, `${GLYPHS[text] || "◌"} ${text}`);
        cell.classList.toggle("drlnb-bad", text === "failed");
      } else if (c.kind === "progress") {
        const of = t[c.of][i],
          text = of ? `${count(v)}/${count(of)}` : count(v);
        if (cell.dataset.key !== text) {
          cell.dataset.key = text;
          const bar = make("i");
          bar.style.width = `${of ? Math.min(100, (100 * v) / of) : 0}%`;
          cell.replaceChildren(
            make("span", { class: "drlnb-bar", "aria-hidden": "true" }, bar),
            make("span", { text }),
          );
        }
      } else if (c.kind === "duration") put(cell, duration(v));
      else if (c.kind === "percent") put(cell, percent(v));
      else if (c.kind === "spark") {
        const key = row.spark.join();
        if (cell.dataset.key !== key) {
          cell.dataset.key = key;
          cell.replaceChildren(spark(row.spark));
        }
      } else if (c.kind === "text") put(cell, state.header.names[v]);
      else put(cell, number(v, 4));
    });
    cols().forEach((c, k) => {
      const bare = c.kind === "spark" ? !row.spark.length : row.cells[k].textContent === "-";
      row.cells[k].toggleAttribute("data-empty", bare);
    });
    renewActions(row, i, t);
    const mine = (state.header.actions || [])
      .map((/** @type {any} */ a) => commands.of(`${row.name}\n${a.name}`))
      .filter((/** @type {any} */ one) => one && one.text);
    const called = t.state ? state.header.names[t.state[i]] : "",
      now = SETTLED.has(called) ? called : "at work";
    if (row.saidIn === undefined) row.saidIn = now;
    else if (row.saidIn !== now) {
      // what was said of a row holds until it begins or ends
      row.said = "";
      row.saidIn = now;
    }
    put(row.note, mine.length ? mine[mine.length - 1].text : row.said);
    row.note.classList.toggle(
      "drlnb-bad",
      mine.some((/** @type {any} */ one) => one.state === "failed"),
    );
    put(row.trace, t.failure ? state.header.names[t.failure[i]] : "");
    put(row.cause, t.cause ? state.header.names[t.cause[i]] : "");
    row.more.hidden = !(chosen === row.name && row.trace.textContent);
    row.tr.setAttribute("aria-selected", String(chosen === row.name));
  }
  function order() {
    const t = table(),
      all = [...Array(t.n).keys()],
      c = cols().find((one) => one.key === sort.key);
    if (!c) return all;
    const value = (/** @type {number} */ i) =>
        c.kind === "series"
          ? nameOf(i)
          : ["state", "text"].includes(c.kind)
            ? state.header.names[t[c.key][i]]
            : t[c.key][i],
      way = sort.down ? -1 : 1;
    return all.sort((a, b) => {
      const p = value(a),
        q = value(b);
      if (Number.isNaN(p) || Number.isNaN(q))
        return Number(Number.isNaN(p)) - Number(Number.isNaN(q));
      return (p < q ? -way : p > q ? way : 0) || a - b;
    });
  }
  /** @param {string} name */
  function choose(name, others = true) {
    chosen = chosen === name && others ? null : name;
    model.set("_selection", chosen || "");
    if (model.save_changes) model.save_changes();
    rows.forEach(fill);
    if (others && chosen) tell({ task: chosen, source: state.header.name });
  }
  /** @param {any} e @param {string} name */
  function keys(e, name) {
    if (e.target.tagName === "BUTTON") {
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
    wanted.forEach((/** @type {HTMLElement} */ node, /** @type {number} */ i) => {
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
    for (const i of order()) {
      const name = nameOf(i),
        row = rows.get(name) || newRow(name);
      names.add(name);
      row.index = i;
      row.spark = sparks.get(t[state.header.row_key || "task"][i]) || [];
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
    if (!t.n && !body.children.length)
      body.append(
        make(
          "tr",
          { test: "empty" },
          make("td", {
            colspan: String(cols().length),
            class: "drlnb-dim",
            text: state.header.sentence,
          }),
        ),
      );
    else if (t.n) {
      const empty = body.querySelector('[data-testid="empty"]');
      if (empty) empty.remove();
    }
    if (tools) tools.renew();
  }
  let held = false;
  const press = () => {
      held = true;
    },
    lift = () => {
      if (held) {
        held = false;
        setTimeout(() => {
          if (!gone.aborted) guarded(model, changed)();
        });
      }
    };
  body.addEventListener("pointerdown", press);
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
  function cleanup() {
    if (gone.aborted) return;
    gone.aborted = true;
    state.stop();
    quiet();
    window.removeEventListener("drlnb:select", select);
    for (const end of ["pointerup", "pointercancel"]) window.removeEventListener(end, lift);
  }
  if (signal) signal.addEventListener("abort", cleanup, { once: true });
  return cleanup;
}
export default { render };
