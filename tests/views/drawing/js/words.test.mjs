// Run by tests/views/drawing/test_assets.py: node --test; the text of a whole module is in the environment.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const here = new URL(".", import.meta.url);
const js = new URL("../../../../drlnb/views/drawing/js/", here);
const load = (files, names) => {
  const text = files.map((f) => readFileSync(new URL(`${f}.js`, js), "utf8")).join("\n");
  return import(`data:text/javascript,${encodeURIComponent(`${text}\nexport { ${names} };`)}`);
};
const common = await load(["common", "picture"], "duration, milliseconds, number, percent, count, axisSeconds, inkOn, readTables, patchTables, feed, ticks, csvCell, svgPen");
const golden = JSON.parse(readFileSync(new URL("words.golden.json", here), "utf8"));

test("words are the golden ones", () => {
  const named = { ...common, axis_seconds: common.axisSeconds };
  for (const [name, args, said] of golden.words) assert.equal(named[name](...args), said, `${name}(${args})`);
});
test("what is not known is a dash", () => {
  for (const v of [NaN, Infinity, null, undefined]) assert.equal(common.duration(v), "-");
});
test("ink is legible on every colour", () => {
  const light = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  for (const [, colour] of golden.styles.slice(0, 8)) {
    const ink = common.inkOn(colour) === "#111" ? "#111111" : "#ffffff", [a, b] = [light(colour), light(ink)].sort();
    assert.ok((b + 0.05) / (a + 0.05) >= 3, `${ink} on ${colour}`);
  }
});
test("a delta drops, keeps and appends", () => {
  const old = { bars: { n: 3, start: Float64Array.of(1, 2, 3), lane: Uint16Array.of(0, 1, 0) } };
  const layout = [{ table: "bars", n: 1, drop: 1, keep: 1, columns: [["start", "t"], ["lane", "h"]] }];
  const tail = { bars: { n: 1, start: Float64Array.of(9), lane: Uint16Array.of(4) } }, next = common.patchTables(old, layout, tail);
  assert.deepEqual([...next.bars.start], [2, 9]);
  assert.deepEqual([...next.bars.lane], [1, 4]);
  assert.equal(next.bars.n, 2);
});
test("columns are read at aligned places, from an unaligned buffer", () => {
  const raw = new ArrayBuffer(13), at = new DataView(raw, 1);
  at.setUint8(0, 7); at.setUint8(1, 8);
  at.setFloat32(4, 0.5, true); at.setFloat32(8, 1.5, true);
  const layout = [{ table: "x", n: 2, t0: 1e6, columns: [["lane", "b"], ["t", "t"]] }], { x } = common.readTables(layout, at);
  assert.deepEqual([...x.lane], [7, 8]);
  assert.deepEqual([...x.t], [1000000.5, 1000001.5]);
});
test("a moment is the same whatever it was relative to", () => {
  for (const t0 of [0, 0.25, 1.7, 2.0639]) {
    const layout = [{ table: "x", n: 1, t0, columns: [["t", "t"]] }];
    assert.equal(common.readTables(layout, Float32Array.of(2.06395 - t0)).x.t[0], 2.06395);
  }
});
class Model {
  constructor(values = {}) { this.values = values; this.heard = {}; this.sent = []; }
  get(key) { return this.values[key]; }
  on(event, run) { (this.heard[event] ??= []).push(run); }
  off(event, run) { this.heard[event] = this.heard[event].filter((one) => one !== run); }
  send(m) { this.sent.push(m); }
  fire(event, ...args) { this.heard[event].forEach((run) => run(...args)); }
}
test("a page says hello, and again after a gap", () => {
  const model = new Model(), seen = [], state = common.feed(model, (s) => seen.push(s.header.sentence));
  assert.deepEqual(model.sent, [{ kind: "hello", seq: 0 }]);
  model.fire("msg:custom", { kind: "snapshot", seq: 4, n: 0, header: { sentence: "a", layout: [] } }, []);
  model.fire("msg:custom", { kind: "delta", seq: 5, n: 0, header: { sentence: "b" }, layout: [] }, []);
  model.fire("msg:custom", { kind: "delta", seq: 5, n: 0, header: { sentence: "twice" }, layout: [] }, []);
  assert.deepEqual(seen, ["a", "b"]);
  model.fire("msg:custom", { kind: "delta", seq: 7, n: 0, header: {}, layout: [] }, []);
  model.fire("msg:custom", { kind: "beat", seq: 9 }, []);
  assert.deepEqual(model.sent.slice(1), [{ kind: "hello", seq: 5 }, { kind: "hello", seq: 5 }]);
  state.stop();
  assert.equal(Object.values(model.heard).flat().length, 0);
});
test("columns are named once", () => {
  const model = new Model(), seen = [], columns = [["lane", "h"]], bytes = (...lanes) => [new DataView(Uint16Array.of(...lanes, ...(lanes.length % 2 ? [0] : [])).buffer)];
  common.feed(model, (s) => seen.push([...s.tables.bars.lane]));
  model.fire("msg:custom", { kind: "snapshot", seq: 1, n: 2, header: { layout: [{ table: "bars", n: 2, columns }] } }, bytes(1, 2));
  model.fire("msg:custom", { kind: "delta", seq: 2, n: 1, header: {}, layout: [{ table: "bars", n: 1, drop: 1, keep: 1 }] }, bytes(3));
  model.fire("msg:custom", { kind: "delta", seq: 3, n: 0, header: { sentence: "x" }, layout: [] }, []);
  assert.deepEqual(seen, [[1, 2], [2, 3], [2, 3]]);
});
test("an older synced snapshot does not undo what messages told", () => {
  const model = new Model({ _header: JSON.stringify({ seq: 1, sentence: "old", layout: [] }) }), seen = [];
  common.feed(model, (s) => seen.push(s.header.sentence));
  model.fire("msg:custom", { kind: "delta", seq: 2, n: 0, header: { sentence: "new" }, layout: [] }, []);
  model.fire("change:_snapshot");
  assert.deepEqual(seen, ["old", "new"]);
});
test("an error while drawing is told", () => {
  const model = new Model({ _header: "{" }), log = console.error;
  console.error = () => {};
  common.feed(model, () => {});
  console.error = log;
  assert.equal(model.sent[0].kind, "js_error");
});
test("cells of a CSV are no formulas", () => {
  assert.equal(common.csvCell("=1+1"), "'=1+1");
  assert.equal(common.csvCell('a,"b"'), '"a,""b"""');
  assert.equal(common.csvCell(-2), "-2");
});
test("text in an SVG stays text", () => {
  const pen = common.svgPen(10, 10, "#fff");
  pen.text("<img src=x onerror=alert(1)>", 0, 0, "#000");
  assert.ok(!pen.done("</svg><script>").includes("<img") && !pen.done("</svg><script>").includes("<script"));
});
test("ticks are whole steps inside the range", () => {
  assert.deepEqual(common.ticks(0, 10, 5), { step: 2, at: [0, 2, 4, 6, 8, 10] });
  assert.deepEqual(common.ticks(0, 200, 4, true), { step: 60, at: [0, 60, 120, 180] });
});
