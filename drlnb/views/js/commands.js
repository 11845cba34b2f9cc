// Shared by what acts: a command is pending at once, on this side; it ends by an answer of Python, never by a timer.

const BUSY = "the kernel is busy, the click is kept";
function commander(model, changed, gone) {
  const open = new Map(); // key of the button -> { id, state, text }
  const byId = (id) => [...open.entries()].find(([, one]) => one.id === id);
  return {
    of: (key) => open.get(key),
    busy: () => [...open.values()].some((one) => one.state === "pending"),
    send(key, name, args) {
      if (open.has(key) && open.get(key).state === "pending") return;
      const id = makeId(), one = { id, state: "pending", text: "", acked: false };
      open.set(key, one);
      changed(key);
      model.send({ kind: "command", id, name, args });
      setTimeout(() => { if (!one.acked && one.state === "pending" && !gone.aborted) { one.text = BUSY; changed(key); } }, 500);
    },
    said(m) {
      const found = m.id && byId(m.id);
      if (!found) return;
      const [key, one] = found;
      one.acked = true;
      if (m.kind === "ack") one.text = m.text || "";
      if (m.kind === "done") { open.delete(key); changed(key, m.text || "done"); return; }
      if (m.kind === "failed") Object.assign(one, { state: "failed", text: m.text || "failed" });
      changed(key);
    },
  };
}
// A button for one action; a destructive one asks in its place, and forgets the question after 5 s.
function actionButton(action, key, args, commands, gone) {
  const place = make("span", { test: `action-${action.name}` });
  let asking = 0;
  function button(label, test, run) {
    return make("button", { type: "button", test, text: label, onclick: (e) => { e.stopPropagation(); run(); } });
  }
  function go() { clearTimeout(asking); asking = 0; commands.send(key, action.name, args()); }
  function ask() {
    const stop = button(action.label, `${action.name}-yes`, go), keep = button("Keep", `${action.name}-no`, () => { asking = 0; show(true, false); place.querySelector("button").focus(); });
    const question = action.confirm.replace(/\{(\w+)\}/g, (_, name) => args()[name]);
    place.replaceChildren(make("span", { text: `${question} ` }), stop, keep);
    stop.focus();
    asking = setTimeout(() => { asking = 0; if (!gone.aborted) show(true, false); }, 5000);
  }
  function show(enabled, off) {
    if (asking) return;
    const one = commands.of(key), pending = Boolean(one && one.state === "pending");
    let main = place.querySelector("button[data-main]");
    if (!main || place.children.length !== 1) {
      main = button("", `${action.name}-button`, () => { if (main.getAttribute("aria-disabled") !== "true") (action.confirm ? ask : go)(); });
      main.setAttribute("data-main", "");
      place.replaceChildren(main);
    }
    const label = pending ? `${action.label}…` : action.label;
    if (main.textContent !== label) main.textContent = label;
    main.setAttribute("aria-disabled", String(!enabled || off || pending));
    main.setAttribute("data-state", pending ? "pending" : one && one.state === "failed" ? "failed" : "idle");
    main.setAttribute("aria-label", `${action.label} ${Object.values(args()).join(" ")}`);
    place.hidden = !enabled && !pending;
  }
  return { node: place, show };
}
// Calls `run(text)` with a sentence when no news came for 10 s after there had been some, with "" when it is back.
function silence(state, run) {
  let told = "";
  const timer = setInterval(() => {
    const late = state.newsAt && Date.now() - state.newsAt > 10000;
    const text = late ? `no news since ${new Date(state.newsAt).toLocaleTimeString("en-GB")}` : "";
    if (text !== told) run((told = text));
  }, 1000);
  return () => clearInterval(timer);
}
