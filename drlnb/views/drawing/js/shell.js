// Head of every panel: one sentence, where its numbers come from, buttons, copy as code, messages.

const SHELL_CSS = `.drlnb-say{font-size:15px;font-weight:600;flex:1 1 240px;min-height:2.9em}.drlnb-words{min-height:4.35em}.drlnb-told{display:flex;flex-wrap:wrap;gap:0 12px}
.drlnb-chosen :is(input,select,.noUi-target),.drlnb-chosen.noUi-target{outline:2px dashed var(--jp-brand-color1,#0b63c5)!important;outline-offset:1px}.drlnb-say,[data-testid=notes]{overflow-wrap:anywhere}.drlnb-from{border:1px solid var(--drlnb-line);border-radius:10px;padding:0 8px;font-size:12px;color:var(--drlnb-dim)}
.drlnb-end{margin:0 0 0 auto}.drlnb-end .drlnb-row{margin:0}
.drlnb-msg{border-left:3px solid var(--drlnb-line);padding:4px 8px;margin:3px 0;background:var(--drlnb-soft);overflow-wrap:anywhere}.drlnb-msg[data-level=error]{border-color:var(--drlnb-bad)}.drlnb-msg[data-level=warning]{border-color:#d55e00}.drlnb-msg pre{white-space:pre-wrap;max-height:200px;overflow:auto;font-size:12px}
.drlnb-code{white-space:pre-wrap;background:var(--drlnb-soft);padding:6px 8px;border-radius:4px;user-select:all;margin:4px 0}`;

// The last picture, which the notebook's file keeps for when there is no kernel: hidden here as long as this lives, and
// written anew into whatever output holds it, as far as the front end lets its widgets reach the notebook.
/** @param {any} manager @param {string} name @param {string} html */
function keepTwin(manager, name, html) {
  const mark = `data-drlnb-twin="${name}"`,
    cells = manager?.context?.model?.cells;
  for (let i = 0; cells && i < cells.length; i++) {
    const outputs = cells.get(i).outputs;
    for (let k = 0; outputs && k < outputs.length; k++) {
      const output = outputs.get(k).toJSON(),
        held = [output.data?.["text/html"] ?? ""].flat().join("");
      if (!held.includes(mark)) continue;
      const parts = held
        .split(/(?=<div data-drlnb-twin=)/)
        .map((part) => (part.includes(mark) ? html : part));
      outputs.set(k, { ...output, data: { ...output.data, "text/html": parts.join("") } });
    }
  }
}
/** @param {any} one @param {Gone} gone */
function messageNode(one, gone) {
  const many = one.n > 1 ? ` (${one.n} times)` : "",
    node = make("div", {
      class: "drlnb-msg",
      "data-level": one.level || "info",
      "data-text": one.text,
      test: "message",
      role: one.level === "error" ? "alert" : null,
    });
  node.append(make("span", { text: `${one.text}${many}` }));
  if (one.details) {
    const pre = make("pre", { tabindex: "0", text: one.details });
    const button = make("button", {
      type: "button",
      text: "Copy details",
      test: "copy-details",
      onclick: () =>
        copyText(one.details, pre).then((done) => {
          if (!gone.aborted && done) button.textContent = "Copied";
        }),
    });
    node.append(make("details", {}, make("summary", { text: "details" }), pre, button));
  }
  return node;
}
function render(/** @type {Rendered} */ { model, el, signal }) {
  const gone = { aborted: false },
    root = rootOf(el, "shell"),
    hiding = make("style");
  const say = make("div", { class: "drlnb-say", test: "sentence" }),
    from = make("span", { class: "drlnb-from", test: "origin" }),
    chips = make("span"),
    buttons = make("span", { class: "drlnb-row", test: "buttons" });
  const aloud = make("div", {
      class: "drlnb-off",
      role: "status",
      "aria-live": "polite",
      test: "summary",
    }),
    banner = make("div", { class: "drlnb-bad", role: "alert", test: "silence" });
  const notes = make("div", { class: "drlnb-dim", test: "notes" }),
    pre = make("pre", { class: "drlnb-code", test: "code", hidden: true, tabindex: "0" }),
    area = make("div", { role: "status", "aria-label": "messages", test: "messages" });
  const note = make("div", { class: "drlnb-dim", role: "status", test: "command-note" }),
    refused = make("div", { class: "drlnb-bad", role: "alert", test: "refused" }),
    told = make("div", { class: "drlnb-told" }, refused, note),
    words = make("div", { class: "drlnb-words" }, notes, told);
  const copy = make("button", {
    type: "button",
    test: "copy-code",
    text: "Copy as code",
    title: "the Python lines that make this panel",
    onclick: () =>
      copyText(model.get("_code") || "", pre).then((done) => {
        copy.textContent = done ? "Copied" : "Press Ctrl+C";
        setTimeout(() => {
          if (!gone.aborted) copy.textContent = "Copy as code";
        }, 2000);
      }),
  });
  let spoken = 0,
    off = false,
    own = /** @type {any[]} */ ([]),
    acts = /** @type {Action[]} */ ([]);
  const head = make(
    "div",
    { class: "drlnb-row" },
    say,
    from,
    chips,
    make("span", { class: "drlnb-row drlnb-end" }, buttons, copy),
  );
  root.append(
    make("style", { text: COMMAND_CSS + SHELL_CSS }),
    hiding,
    head,
    banner,
    aloud,
    words,
    pre,
    area,
  );
  /** @type {Commander} */
  const commands = commander(
    model,
    (key, text) => {
      const one = commands.of(key);
      note.textContent = text || (one && one.text) || "";
      note.className = one && one.state === "failed" ? "drlnb-bad" : "drlnb-dim";
      showButtons();
    },
    gone,
  );
  const renewRow = actionRow(
    buttons,
    (name) => name,
    (action) => action.args || {},
    commands,
    gone,
    (why) => {
      note.textContent = why;
      note.className = "drlnb-dim";
    },
  );
  function showButtons() {
    renewRow(acts, (action) => ({
      enabled: action.enabled !== false,
      reason: action.reason || "",
      off,
    }));
  }
  let state = blank();
  let zoomed = ""; // what the picture says of the part that it shows
  function headline() {
    const text = zoomed || state.header.sentence || "";
    if (say.textContent !== text) say.textContent = text;
  }
  const zoom = (/** @type {any} */ e) => {
    if (!root.closest("[class*=drlnb-t-]")?.contains(e.detail.root)) return;
    zoomed = e.detail.text;
    headline();
  };
  window.addEventListener("drlnb:zoom", zoom);
  /** @param {State} now */
  function changed(now) {
    const header = now.header;
    state = now;
    headline();
    const twin = `[data-drlnb-twin="${header.twin}"]`,
      hidden = header.twin ? `.jp-OutputArea-child:has(${twin}),${twin}{display:none}` : "";
    if (hiding.textContent !== hidden) hiding.textContent = hidden;
    from.textContent = header.origin || "";
    from.hidden = !header.origin;
    const marked = (header.chips || []).join("\n"),
      waits = (header.waits || []).join(", "),
      noted = [...(waits ? [`chosen, not in force: ${waits}`] : []), ...(header.notes || [])].join(
        " · ",
      );
    if (chips.dataset.key !== marked) {
      chips.dataset.key = marked;
      chips.replaceChildren(
        ...(header.chips || []).map((text) => make("span", { class: "drlnb-from", text })),
      );
    }
    if (notes.textContent !== noted) notes.textContent = noted;
    if (refused.textContent !== (header.refused || "")) refused.textContent = header.refused || "";
    refused.hidden = !header.refused;
    acts = header.buttons || [];
    showButtons();
    if (Date.now() - spoken > 5000) {
      spoken = Date.now();
      aloud.textContent = labelOf(header);
    }
  }
  function messages() {
    const raw = model.get("_messages"),
      told = typeof raw === "string" ? JSON.parse(raw || "[]") : raw || [];
    const open = new Set(
      [...area.querySelectorAll("details[open]")].map((d) => d.parentElement?.dataset.text),
    );
    area.replaceChildren(...[...own, ...told].slice(0, 20).map((one) => messageNode(one, gone)));
    for (const d of area.querySelectorAll("details"))
      d.open = open.has(d.parentElement?.dataset.text);
  }
  /** @param {Message} m */
  function said(m) {
    commands.said(m);
    if (m.kind === "twin") keepTwin(model.widget_manager, state.header.twin || "", m.html);
    if (m.kind === "message") {
      own = [{ level: m.level, text: m.text, details: m.details, n: 1 }, ...own].slice(0, 20);
      messages();
    }
  }
  const renewMessages = guarded(model, () => {
    own = [];
    messages();
  });
  model.on("change:_messages", renewMessages);
  const coded = () => {
    if (!pre.hidden) pre.textContent = model.get("_code") || "";
    copy.hidden = !model.get("_code");
  };
  model.on("change:_code", coded);
  state = feed(model, changed, said);
  guarded(model, messages)();
  coded();
  const quiet = silence(state, (text) => {
    off = Boolean(text);
    const line = state.header.resume;
    banner.textContent =
      text && line ? `${text}; if the kernel is gone, go on with: ${line}` : text;
    showButtons();
  });
  // JupyterLab says so when a kernel is restarted; the next news, if ever, take it back.
  const lost = guarded(model, () => {
    state.lostAt = Date.now();
  });
  model.on("comm_live_update", lost);
  const unsteady = steady(root, head, words);
  return ending(gone, signal, () => {
    state.stop();
    quiet();
    window.removeEventListener("drlnb:zoom", zoom);
    unsteady();
    model.off("change:_messages", renewMessages);
    model.off("change:_code", coded);
    model.off("comm_live_update", lost);
  });
}
export default { render };
