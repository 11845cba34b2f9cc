// Run by tests/views/drawing/test_assets.py: buttons on a page of a few lines, and marks that would lie on each other.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

class Element {
  constructor(tag) { this.tag = tag; this.attrs = {}; this.children = []; this.parent = null; this.heard = {}; this.dataset = {}; this.style = {}; this.hidden = false; this.own = ""; }
  get textContent() { return this.own + this.children.map((one) => (typeof one === "string" ? one : one.textContent)).join(""); }
  set textContent(text) { this.replaceChildren(); this.own = text; }
  getAttribute(name) { return this.attrs[name] ?? null; }
  setAttribute(name, value) { this.attrs[name] = String(value); }
  addEventListener(name, run) { (this.heard[name] ??= []).push(run); }
  insertBefore(node, before) { node.remove(); node.parent = this; this.children.splice(before ? this.children.indexOf(before) : this.children.length, 0, node); }
  append(...nodes) { nodes.forEach((node) => (typeof node === "string" ? this.children.push(node) : this.insertBefore(node, null))); }
  replaceChildren(...nodes) { this.children.forEach((one) => { one.parent = null; }); this.children = []; this.own = ""; this.append(...nodes); }
  remove() { if (this.parent) this.parent.children.splice(this.parent.children.indexOf(this), 1); this.parent = null; }
  contains(node) { for (let at = node; at; at = at.parent) if (at === this) return true; return false; }
  focus() { document.activeElement = this; }
  click() { this.heard.click.forEach((run) => run({ stopPropagation() {} })); }
  find(test) { return this.attrs["data-testid"] === test ? this : this.children.map((one) => one.find?.(test)).find(Boolean); }
}
globalThis.document = { createElement: (tag) => new Element(tag), activeElement: null };

const js = new URL("../../../../drlnb/views/drawing/js/", import.meta.url);
const load = (files, names) => {
  const text = files.map((f) => readFileSync(new URL(`${f}.js`, js), "utf8")).join("\n").replace("export default { render };", "const stage = (given) => given.stage, titled = String;");
  return import(`data:text/javascript,${encodeURIComponent(`${text}\nexport { ${names} };`)}`);
};
const { actionRow, commander } = await load(["common", "commands"], "actionRow, commander");
const { groupMarks, render } = await load(["common", "picture", "timeline"], "groupMarks, render");
const chart = await load(["common", "picture", "chart"], "render");
const topology = await load(["common", "picture", "topology"], "render");

function row(actions, { off = false } = {}) {
  const place = new Element("div"), sent = [], told = [], gone = { aborted: false };
  let shown = actions;
  const commands = commander({ send: (m) => sent.push(m) }, () => renew(), gone);
  const one = actionRow(place, (name) => name, () => ({ task: "a" }), commands, gone, (why) => told.push(why));
  const renew = (next = shown) => { shown = next; one(shown, (action) => ({ enabled: action.enabled, reason: action.reason, off })); };
  renew();
  gone.aborted = true; // timers that are still open find nobody
  return { place, sent, told, commands, renew, button: (name) => place.find(`${name}-button`) };
}
const PAUSE = { name: "pause", label: "Pause", enabled: true, reason: "" }, RESUME = { name: "resume", label: "Resume", enabled: false, reason: "it is not paused" };

test("a button that is off is there, and says why", () => {
  const page = row([PAUSE, RESUME]), resume = page.button("resume");
  assert.equal(resume.parent.hidden, false);
  assert.deepEqual([resume.attrs["aria-disabled"], resume.attrs.title, resume.attrs["aria-label"]], ["true", "it is not paused", "Resume a"]);
  resume.click();
  assert.deepEqual([page.sent, page.told], [[], ["it is not paused"]]);
  assert.deepEqual([page.button("pause").attrs["aria-disabled"], page.button("pause").attrs.title], ["false", ""]);
});
test("an action without a reason has no place", () => {
  assert.equal(row([PAUSE, { ...RESUME, reason: null }]).button("resume").parent.hidden, true);
});
test("without news from the kernel every button says so", () => {
  assert.equal(row([PAUSE], { off: true }).button("pause").attrs.title, "no news from the kernel");
});
test("a click that falls into a renewal finds its button", () => {
  const page = row([PAUSE, RESUME]), pause = page.button("pause");
  page.renew([{ name: "start", label: "Start", enabled: true }, { ...RESUME, enabled: true }, { ...PAUSE, label: "Pause all" }]);
  assert.equal(page.button("pause"), pause);
  assert.equal(pause.textContent, "Pause all");
  assert.deepEqual(page.place.children.map((one) => one.attrs["data-testid"]), ["action-start", "action-resume", "action-pause"]);
  pause.click();
  assert.equal(page.sent[0].name, "pause");
});
test("a command is pending until it is answered, and pressed once", () => {
  const page = row([PAUSE]), pause = page.button("pause");
  pause.click(); pause.click();
  assert.equal(page.sent.length, 1);
  assert.deepEqual([pause.attrs["data-state"], pause.attrs["aria-disabled"]], ["pending", "true"]);
  page.commands.said({ kind: "done", id: page.sent[0].id });
  assert.deepEqual([pause.attrs["data-state"], pause.attrs["aria-disabled"]], ["idle", "false"]);
});
test("what went is removed, what comes stands in its place", () => {
  const page = row([PAUSE, RESUME]);
  page.renew([RESUME]);
  assert.equal(page.button("pause"), undefined);
});
test("what destroys asks first, and keeps the focus", () => {
  const page = row([{ name: "stop", label: "Stop", enabled: true, confirm: "Stop {task}?" }]), stop = page.button("stop");
  stop.click();
  assert.equal(page.place.textContent, "Stop a? StopKeep");
  page.place.find("stop-no").click();
  assert.deepEqual([page.sent, page.button("stop"), document.activeElement], [[], stop, stop]);
  stop.click();
  page.place.find("stop-yes").click();
  assert.deepEqual(page.sent.map((m) => [m.name, m.args]), [["stop", { task: "a" }]]);
});
test("marks within six pixels are one, with their number and their words", () => {
  const marks = [{ t: 5, label: "hold: yield" }, { t: 1, label: "A rho: 2" }, { t: 1.02, label: "hold: round" }, { t: 1.05, label: "B rho: 3" }];
  const groups = groupMarks(marks, (t) => 100 * t);
  assert.deepEqual(groups.map((one) => [one.at, one.label]), [[100, "3×"], [500, "hold: yield"]]);
  assert.equal(groups[0].text, "3 marks at 1.0 s: A rho: 2; hold: round; B rho: 3");
  assert.equal(groups[1].text, "mark at 5.0 s: hold: yield");
});
test("a label that would run into the next mark is left out", () => {
  const groups = groupMarks([{ t: 0, label: "a long label" }, { t: 10, label: "b" }], (t) => t);
  assert.deepEqual(groups.map((one) => one.label), ["", "b"]);
});
test("the last label stands where there is room for it", () => {
  const marks = [{ t: 0, label: "a" }, { t: 90, label: "hold: yield" }], sides = (right) => groupMarks(marks, (t) => t, right).map((one) => [one.label, one.side]);
  assert.deepEqual(sides(200), [["a", "left"], ["hold: yield", "left"]]);
  assert.deepEqual(sides(100), [["a", "left"], ["hold: yield", "right"]]);
  assert.deepEqual(groupMarks([{ t: 80, label: "a" }, { t: 90, label: "hold: yield" }], (t) => t, 100).map((one) => one.label), ["", ""]);
});
function areas(tables, span, zoom = null, { header = {}, dataAt = 0 } = {}) {
  const lanes = [{ label: "n0", kind: "slot" }], series = ["#a", "#b"].map((colour) => ({ name: colour, letter: "A", colour, hatch: "" }));
  const state = { header: { lanes, series, span, x: { label: "", unit: "", kind: "number" }, ...header }, tables, dataAt };
  const stage = { canvas: new Element("canvas"), details: new Element("p"), state, zoom, focus: null, groups: [], gone: {}, ask() {}, start: (one) => one };
  const seen = { "#a": 0, "#b": 0 }, none = () => {};
  const pen = { rect: (x, y, w, h, fill) => { if (fill in seen) seen[fill] += w * h; if (fill === "#soft") seen.all = w * h; }, line: none, text: none, frame: none, clip: (x, y, w, h, draw) => draw() };
  render({ stage, model: {}, el: new Element("div") }).draw(pen, 400, 140, { soft: "#soft" });
  return ["#a", "#b"].map((colour) => seen[colour] / seen.all);
}
const table = (columns) => ({ n: columns.start.length, lane: columns.start.map(() => 0), ...columns });
const each = (n, of) => Array.from({ length: n }, (_, i) => of(i));
test("bars that are narrower than a pixel fill no more of the lane than they held of it", () => {
  const bars = table({ start: each(2000, (i) => i / 2), stop: each(2000, (i) => i / 2 + (i % 2 ? 0.1 : 0.3)), series: each(2000, (i) => i % 2) });
  for (const zoom of [null, [0, 100], [500, 560]]) {
    const [a, b] = areas({ bars }, [0, 1000], zoom);
    assert.ok(Math.abs(a - 0.3) < 0.02 && Math.abs(b - 0.1) < 0.02, `${zoom}: ${a}, ${b}`);
  }
});
test("shares of older time stand above each other", () => {
  const shares = table({ low: [0, 0, 64], high: [64, 64, 128], start: [16, 48, 96], stop: [48, 64, 128], series: [0, 1, 0], computed: [0, 0, 0] });
  const [a, b] = areas({ shares }, [0, 128]);
  assert.ok(Math.abs(a - 0.5) < 1e-6 && Math.abs(b - 0.125) < 1e-6, `${a}, ${b}`);
});
test("what is held goes on by the page's clock while rows come, and ends with what is known where none does", (t) => {
  t.mock.method(performance, "now", () => 10_000);
  const open = table({ start: [6], stop: [8], series: [0] });
  const held = (live, silent_ms) => areas({ open }, [0, 8], null, { header: { now: 8, live }, dataAt: 10_000 - silent_ms })[0];
  for (const [live, silent_ms, share] of [[true, 1000, 3 / 9], [true, 5000, 4 / 10], [false, 1000, 2 / 8], [false, 5000, 2 / 8]])
    assert.ok(Math.abs(held(live, silent_ms) - share) < 0.01, `${live} ${silent_ms}: ${held(live, silent_ms)}`);
});
test("numbers of a part are sums of what is drawn in it, and the four parts are the whole", () => {
  const lanes = [{ label: "n0", kind: "slot" }, { label: "A waits", kind: "wait" }], series = [{ name: "a", letter: "A", colour: "#a", hatch: "" }];
  const tables = {
    bars: table({ start: [20, 30], stop: [24, 36], series: [0, 0] }),
    open: table({ start: [38], stop: [40], series: [0] }),
    work: table({ start: [21, 31], stop: [23, 35], series: [0, 0], computed: [2, 2] }), // the second one has rests within
    shares: { n: 2, low: [0, 0], high: [16, 16], start: [8, 0], stop: [16, 16], lane: [0, 1], series: [0, 0], computed: [4, 0] },
    absent: { n: 1, start: [26], stop: [28], lane: [0] },
    refused: { n: 1, low: [36], high: [38], start: [37], stop: [38] },
  };
  const state = { header: { lanes, series, span: [0, 40], now: 40, slots: 1, x: { kind: "clock" } }, tables, dataAt: 0 };
  const stage = { canvas: new Element("canvas"), details: new Element("p"), state, zoom: null, focus: null, groups: [], gone: {}, ask() {}, start: (one) => one };
  const { within, chosen } = render({ stage, model: {}, el: new Element("div") });
  assert.equal(chosen(), null);
  const seconds = (span, there) => Object.fromEntries(Object.entries(within(span).values).map(([key, part]) => [key, part === null ? null : Math.round(part * there * 1e6) / 1e6]));
  assert.deepEqual(seconds([0, 40], 38), { longest_wait_s: null, fairness: null, computing: 8, idle: 12, refused: 1, free: 17, held: 20 });
  assert.deepEqual(seconds([8, 22], 14), { longest_wait_s: null, fairness: null, computing: 3, idle: 3, refused: 0, free: 8, held: 6 });
  assert.deepEqual(seconds([33, 99], 7), { longest_wait_s: null, fairness: null, computing: 1, idle: 4, refused: 1, free: 1, held: 5 });
  assert.equal(within([20, 24]).text, "held 100 %, computing 50 % of the time that slots were there");
  state.header.slots = undefined;
  assert.equal(within([0, 40]), null);
});
function stroked(x, y, zoom, means) {
  const points = { n: x.length, line: x.map(() => 0), x, y, lo: x.map(() => NaN), hi: x.map(() => NaN) };
  const header = { lines: [{ label: "slots lent", series: 0, dots: false, step: true }], series: [{ name: "slots lent", letter: "L", colour: "#a", hatch: "" }], x: {}, y: {}, means };
  const stage = { canvas: new Element("canvas"), details: new Element("p"), state: { header, tables: { points } }, zoom, focus: null, groups: [], ask() {}, start: (one) => one };
  const drawing = chart.render({ stage, model: {} }), lines = [], none = () => {};
  const pen = { rect: none, text: none, area: none, line: (points, colour) => colour === "#a" && lines.push(points), clip: (x, y, w, h, draw) => draw() };
  drawing.changed();
  const at = drawing.draw(pen, 480, 260, { fg: "#f" });
  let area = 0;
  for (let k = 0; k + 1 < lines[0].length; k++) area += (lines[0][k + 1][0] - lines[0][k][0]) * lines[0][k][1];
  return { drawing, share: (level) => (area / (at.right - at.left) - level[0]) / (level[1] - level[0]), points: lines[0], at };
}
test("a line of steps has the area of its steps, at any zoom", () => {
  const x = each(4001, (i) => i / 4), y = x.map((_, i) => (i % 4 === 3 ? 0 : 1)); // lent three quarters of each second
  const level = (one) => [0, 1].map((v) => { const { bottom } = one.at, top = 20, [least, most] = [-0.06, 1.06]; return bottom - ((v - least) / (most - least)) * (bottom - top); });
  for (const zoom of [null, [100, 200], [500, 508]]) {
    const one = stroked(x, y, zoom, { mean: null, lent: 0 });
    assert.ok(Math.abs(one.share(level(one)) - 0.75) < 1e-6, `${zoom}: ${one.share(level(one))}`);
  }
  const far = stroked(x, y, null, {}).points, near = stroked(x, y, [500, 508], {}).points;
  assert.ok(far.length <= 2 * 480, "no more than two points per pixel");
  assert.equal(new Set(near.map(([, v]) => Math.round(v))).size, 2, "steps that can be seen are steps");
});
// Of n hosts: one more gets its part with each moment, and the first one is lost at half time.
function followed(n, parts = []) {
  const series = "·↓✓✕→R".split("").map((letter, i) => ({ name: `state ${i}`, letter, colour: `#00000${i}`, hatch: i === 5 ? "x" : "" }));
  const step = 65534 / n, cells = each(n * Math.max(1, parts.length), (i) => i % n), never = 65535;
  const tables = {
    cells: { n: cells.length, begun: cells.map((i) => i * step), done: cells.map((i) => (i + 0.5) * step) },
    hosts: { n, gone: each(n, (i) => (i ? never : 32767)) },
    edges: { n: 1, sender: [0], receiver: [n], begun: [0], stop: [1], series: [4] },
  };
  const header = { series, parts, part: 0, span: [0, 1], at: 0.5, names: ["learner", ...each(n, (i) => `h${i}`)], origin: "simulated", sentence: "", x: "host", moments: [{ t: 0.5, label: "h0 lost" }] };
  const stage = { canvas: new Element("canvas"), details: new Element("p"), state: { header, tables }, zoom: null, focus: null, ask() {}, start: (one) => one };
  const drawing = topology.render({ stage }), frames = [], letters = [], none = () => {};
  const pen = { rect: none, line: none, text: (text, x, y, colour, align, bold) => bold && letters.push(text), frame: (x, y) => frames.push([x, y]), clip: (x, y, w, h, draw) => draw() };
  drawing.changed();
  return { drawing, stage, said: () => drawing.above.find("said").textContent, frames, letters, draw: (width, height) => { frames.length = letters.length = 0; drawing.draw(pen, width, height, {}); } };
}
test("hosts of a ring stand apart, on a narrow page, too", () => {
  for (const [n, width, height] of [[16, 160, 360], [16, 800, 320], [24, 240, 360], [24, 1200, 320]]) {
    const page = followed(n);
    page.draw(width, height);
    const places = page.frames.slice(1); // the first one is the learner's
    assert.equal(places.length, n);
    for (const [i, [x, y]] of places.entries())
      for (const [u, v] of places.slice(i + 1)) assert.ok(Math.abs(x - u) >= 24 || Math.abs(y - v) >= 17, `${n} ${width}: ${[x, y, u, v]}`);
    assert.ok(places.every(([x, y]) => x >= 0 && x + 26 <= width && y >= 0 && y + 34 <= height), `${n} ${width}`);
  }
});
test("the scrubber and its button move through the states, which letters show", () => {
  const page = followed(4), knob = page.drawing.above.find("moment"), jump = page.drawing.above.find("jump");
  const at = (share) => { knob.value = String(share * 1000); knob.heard.input[0](); return page.said().split(": ")[1]; };
  assert.equal(page.said(), "500 ms of 1.0 s: 1 state 0, 1 state 1, 1 state 2, 1 state 3");
  assert.deepEqual([at(0), at(0.2), at(1)], ["3 state 0, 1 state 1", "3 state 0, 1 state 2", "3 state 2, 1 state 3"]);
  jump.click();
  page.draw(400, 320);
  assert.deepEqual(page.letters, ["✕", "✓", "↓", "·"]);
});
test("keys walk over hosts and rows, and stay within them", () => {
  const page = followed(30, ["0", "1"]), { keys, tap, tip } = page.drawing, said = () => page.stage.details.textContent;
  keys.ArrowLeft();
  assert.equal(said(), "");
  keys.ArrowRight(); keys.ArrowRight(); keys.ArrowDown(); keys.ArrowDown();
  assert.equal(said(), "h1 · 1 · state 2 · from 33 ms · whole at 50 ms");
  keys.ArrowUp();
  assert.ok(said().startsWith("h1 · 0 · "));
  keys.Escape();
  assert.equal(said(), "");
  page.draw(640, 120);
  assert.equal(tip(-5, -5), "");
  tap(635 - 12, 25);
  assert.equal(said(), "h29 · 0 · state 0 · from 967 ms · whole at 983 ms · state 4 by learner");
});
