// Shared by what acts: a command is pending at once, on this side; it ends by an answer of Python, never by a timer.

const BUSY = "the kernel is busy, the click is kept";
/**
 * @param {Model} model
 * @param {(key: string, text?: string) => void} changed
 * @param {Gone} gone
 * @returns {Commander}
 */
function commander(model, changed, gone) {
  const open = /** @type {Map<string, Asked>} */ (new Map()); // by key of the button
  const byId = (/** @type {string} */ id) => [...open.entries()].find(([, one]) => one.id === id);
  return {
    of: (key) => open.get(key),
    renew: (key) => changed(key),
    send(key, name, args) {
      if (open.get(key)?.state === "pending") return;
      const id = makeId(),
        one = /** @type {Asked} */ ({ id, name, args, state: "pending", text: "", acked: false });
      open.set(key, one);
      changed(key);
      model.send({ kind: "command", id, name, args });
      setTimeout(() => {
        if (!one.acked && one.state === "pending" && !gone.aborted) {
          one.text = BUSY;
          changed(key);
        }
      }, 500);
    },
    said(m) {
      // A whole picture comes after a gap: an answer may have been lost in it.  The same id is carried out once.
      if (m.kind === "snapshot")
        for (const { id, name, args, state } of open.values())
          if (state === "pending") model.send({ kind: "command", id, name, args });
      const found = m.id && byId(m.id);
      if (!found) return;
      const [key, one] = found;
      one.acked = true;
      if (m.kind === "ack") one.text = m.text || "";
      if (m.kind === "done") {
        open.delete(key);
        changed(key, m.text || "done");
        return;
      }
      if (m.kind === "failed") Object.assign(one, { state: "failed", text: m.text || "failed" });
      changed(key);
    },
  };
}
// The page refuses the clipboard without https: then the text lies open and selected, one key press from copied.
/** @param {string} text @param {HTMLElement} pre */
function copyText(text, pre) {
  const open = () => {
    pre.hidden = false;
    const range = document.createRange();
    range.selectNodeContents(pre);
    const all = /** @type {Selection} */ (getSelection());
    all.removeAllRanges();
    all.addRange(range);
    return false;
  };
  if (pre.textContent !== text) pre.textContent = text;
  if (!navigator.clipboard || !window.isSecureContext) return Promise.resolve(open());
  return navigator.clipboard.writeText(text).then(() => true, open);
}
const COMMAND_CSS = `[data-testid^=action-]{display:inline-flex;flex-wrap:wrap;align-items:center;gap:4px}.drlnb-ask{white-space:normal;overflow-wrap:anywhere;display:inline-block;max-width:150px;vertical-align:middle}button[data-main]{position:relative}button[data-main][data-state=pending]::after{content:"…";position:absolute;right:1px}button[data-main][data-state=failed]{border-color:var(--drlnb-bad)}`;
// A button for one action; a destructive one asks in its place, and forgets the question after 5 s.  Its node stays as
// long as the action is there, so a click never falls between two of them; one that is off says why: as its title, and
// by `tell` when it is pressed all the same.
/**
 * @param {Action} first
 * @param {string} key
 * @param {(action: Action) => Record<string, any>} args
 * @param {Commander} commands
 * @param {Gone} gone
 * @param {(why: string) => void} tell
 */
function actionButton(first, key, args, commands, gone, tell = () => {}) {
  const place = make("span", { test: `action-${first.name}` });
  let asking = /** @type {any} */ (0),
    action = first,
    why = "";
  /** @param {string} label @param {string} test @param {(...args: any[]) => any} run */
  function button(label, test, run) {
    return make("button", {
      type: "button",
      test,
      text: label,
      onclick: (/** @type {any} */ e) => {
        e.stopPropagation();
        if (!(e.detail > 1)) run();
      },
    }); // of a double click the first half counts
  }
  const main = button("", `${first.name}-button`, () => {
    if (main.getAttribute("aria-disabled") === "true") tell(why);
    else (action.confirm ? ask : go)();
  });
  main.setAttribute("data-main", "");
  place.append(main);
  function go() {
    commands.send(key, action.name, args(action));
    back();
  }
  function back() {
    const held = asking && place.contains(document.activeElement);
    clearTimeout(asking);
    if (asking) place.replaceChildren(main);
    asking = 0;
    if (held) main.focus();
    commands.renew(key);
  }
  function ask() {
    const stop = button(action.label, `${action.name}-yes`, go),
      keep = button("Keep", `${action.name}-no`, back),
      told = args(action);
    const question = action.confirm.replace(/\{(\w+)\}/g, (_, name) => told[name]);
    place.replaceChildren(make("span", { class: "drlnb-ask", text: `${question} ` }), stop, keep);
    stop.focus();
    asking = setTimeout(() => {
      if (!gone.aborted) back();
    }, 5000);
  }
  // `enabled`: whether it works now; `reason`: why not, and null for one that has no place here.
  /** @param {Action} now */
  function show(now, /** @type {Standing} */ { enabled, reason, off }) {
    action = now;
    if (asking) return;
    const one = commands.of(key),
      pending = Boolean(one && one.state === "pending");
    why = pending
      ? "asked already, the answer is on its way"
      : off
        ? "no news from the kernel"
        : enabled
          ? ""
          : reason || "not possible now";
    const told = Object.values(args(action))
      .filter((v) => typeof v === "string")
      .join(" ");
    const wanted = {
      "aria-disabled": String(Boolean(why)),
      "data-state": pending ? "pending" : one && one.state === "failed" ? "failed" : "idle",
      "aria-label": `${action.label} ${told}`.trim(),
      title: why,
    };
    if (main.textContent !== action.label) main.textContent = action.label;
    for (const [name, value] of Object.entries(wanted))
      if (main.getAttribute(name) !== value) main.setAttribute(name, value);
    place.hidden = !enabled && reason === null && !pending;
  }
  return { node: place, show, stop: () => clearTimeout(asking) };
}
// Buttons of one place, kept by name: what stays is changed in place, what is new is added, what went is removed.
/**
 * @param {HTMLElement} place
 * @param {(name: string) => string} keyOf
 * @param {(action: Action) => Record<string, any>} args
 * @param {Commander} commands
 * @param {Gone} gone
 * @param {(why: string) => void} tell
 */
function actionRow(place, keyOf, args, commands, gone, tell) {
  const shown = /** @type {Map<string, ReturnType<typeof actionButton>>} */ (new Map());
  /** @param {Action[]} actions @param {(action: Action, i: number) => Standing} stateOf */
  return function renew(actions, stateOf) {
    const names = new Set(actions.map((action) => action.name));
    for (const [name, one] of shown)
      if (!names.has(name)) {
        one.stop();
        one.node.remove();
        shown.delete(name);
      }
    actions.forEach((action, i) => {
      if (!shown.has(action.name))
        shown.set(
          action.name,
          actionButton(action, keyOf(action.name), args, commands, gone, tell),
        );
      const one = /** @type {ReturnType<typeof actionButton>} */ (shown.get(action.name));
      if (place.children[i] !== one.node) place.insertBefore(one.node, place.children[i] || null);
      one.show(action, stateOf(action, i));
    });
  };
}
// Calls `run(text)` with a sentence when no news came for 10 s after there had been some, with "" when it is back.
/** @param {State} state @param {(text: string) => void} run */
function silence(state, run) {
  let told = "";
  const timer = setInterval(() => {
    const late = state.newsAt && (state.lostAt > state.newsAt || Date.now() - state.newsAt > 10000);
    const text = late ? `no news since ${new Date(state.newsAt).toLocaleTimeString("en-GB")}` : "";
    if (text !== told) run((told = text));
  }, 1000);
  return () => clearInterval(timer);
}
