"""One picture has many forms; each is read back here, and holds what the columns hold."""

import html
import json
import re
from itertools import pairwise

import numpy as np
import pytest

from drlnb.records.journal import Journal, Stream
from drlnb.sim.warmup.compare import WarmupWorkload, simulate_warmup
from drlnb.views.drawing import svg
from drlnb.views.folds.entries import entries_of
from tests.views.journals import Run, two_tasks
from tests.views.pictures import JOURNALS, VIEWS, boxes_of, drawn
from tests.views.wire import decode

EVERY = [(of, name) for of in JOURNALS for name in VIEWS]
every = pytest.mark.parametrize(("of", "name"), EVERY, ids=["-".join(one) for one in EVERY])
TIMELINES = [one for one in EVERY if one[1] in {"gantt", "shares", "waterfall", "anatomy"}]
CHARTS = [one for one in EVERY if one[1] in {"curves", "curve", "rounds", "starts"}]

#: Picture -> what stands at its axes.
AXES = {
    "gantt": ("time since the run began (s)", None),
    "shares": ("time since the run began (s)", None),
    "waterfall": ("time since the run began (s)", None),
    "anatomy": ("mean time per round (s)", None),
    "curves": ("environment steps", "rollout/ep_rew_mean"),
    "curve": ("planned start after sending (s)", "mean per round (s)"),
    "rounds": ("round", "from sending to the next parameters (s)"),
    "starts": ("from the command to ready (s)", "starts"),
}


@every
def test_json_holds_the_rows(of, name):
    """Read by the standard library, it gives the table twin back."""
    view = drawn(of, name)
    found = json.loads(view.json())
    assert found["rows"] == view.rows()
    assert [column["label"] for column in found["columns"]] == [column.label for column in view.table]
    assert {number["key"]: number["value"] for number in found["numbers"]} == {
        key: value for key, (_, value, _, _) in view.numbers.items()
    }


@every
def test_what_travels_holds_the_columns(of, name):
    """Decoded as JavaScript does, each column has its values but for the digits of its type; names stay indices."""
    view = drawn(of, name)
    tables = decode(*view.payload())
    assert tables.keys() == view.columns.keys()
    for table, columns in view.columns.items():
        for column, values in columns.items():
            assert tables[table][column] == pytest.approx(values, rel=1e-6, abs=1e-4, nan_ok=True), (table, column)
            if any((one.table, one.name) == (table, column) and one.kind == "name" for one in view.table):
                assert np.max(values, initial=0) < len(view.names) or not len(values)


@every
def test_the_last_rows_are_the_tail(of, name):
    """`rows(last)` is what `rows()` ends with, also where more are asked for than there are."""
    view = drawn(of, name)
    rows = view.rows()
    for last in (0, 1, 5, len(rows) + 3):
        assert view.rows(last) == rows[max(0, len(rows) - last) :]


@pytest.mark.parametrize(("of", "name"), TIMELINES)
def test_plotly_has_every_bar_on_its_lane(of, name):
    """Base, width and lane of each bar; a label has one lane."""
    view = drawn(of, name)
    labels = [lane["label"] for lane in view.facts["lanes"]]
    assert len(set(labels)) == len(labels)
    traces = json.loads(view.figure().to_json())["data"]
    bars = view.columns["bars"]
    plotted = sorted(
        (labels.index(html.unescape(lane)), base, base + width)
        for trace in traces if trace["meta"] == "bars"
        for base, width, lane in zip(trace["base"], trace["x"], trace["y"], strict=True)
    )  # fmt: skip
    expected = sorted(zip(bars["lane"].tolist(), bars["start"].tolist(), bars["stop"].tolist(), strict=True))
    assert np.array(plotted).reshape(-1, 3) == pytest.approx(np.array(expected).reshape(-1, 3), abs=1e-9)


@pytest.mark.parametrize(("of", "name"), CHARTS)
def test_plotly_has_every_point_of_every_line(of, name):
    """Line by line, with its label and its points; a step is drawn as one."""
    view = drawn(of, name)
    points = view.columns["points"]
    traces = [trace for trace in json.loads(view.figure().to_json())["data"] if trace["meta"] == "line"]
    assert [html.unescape(trace["name"]) for trace in traces] == [line["label"] for line in view.facts["lines"]]
    for k, (trace, line) in enumerate(zip(traces, view.facts["lines"], strict=True)):
        mine = points["line"] == k
        assert trace["x"] == pytest.approx(points["x"][mine].tolist())
        assert trace["y"] == pytest.approx(points["y"][mine].tolist())
        assert (trace["line"]["shape"] == "hv") == line["step"]


def axis_of(picture, y):
    """Return what turns pixels into values: of two numbers that stand below the axis, their places and values."""
    texts = re.findall(rf'<text x="([\d.]+)" y="{y}" fill="[^"]+" text-anchor="middle">([\d.:kM-]+)</text>', picture)
    ticks = [(float(x), value(text)) for x, text in texts]
    (x0, v0), (x1, v1) = ticks[0], ticks[-1]
    return lambda x: v0 + (x - x0) / (x1 - x0) * (v1 - v0)


def value(text):
    """Return the number that a tick says: 1:30 are 90 s, 20k are 20,000."""
    if ":" in text:
        return sum(60**k * float(part) for k, part in enumerate(reversed(text.split(":"))))
    return float(text.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(text[-1], 1.0)


@pytest.mark.parametrize(("of", "name"), [("two-tasks-one-slot", "gantt"), ("faults", "gantt"), ("faults", "anatomy")])
def test_bars_of_the_svg_stand_where_its_axis_says(of, name):
    """Read from the picture alone: the numbers below it turn each bar's edges into the seconds of the columns."""
    view = drawn(of, name)
    picture = view.svg(width=2000)
    low, high = view.facts["span"]
    bottom = max(float(y) for y in re.findall(r'y="([\d.]+)" fill="#59636e" text-anchor="middle">[\d.:]+<', picture))
    seconds = axis_of(picture, f"{bottom:g}")
    shown = {(round(seconds(x), 1), round(seconds(x + w), 1)) for x, _, w, _ in boxes_of(picture)}
    bars, pixel = view.columns["bars"], (high - low) / 1800
    assert len(bars["start"]) > 3
    for start, stop in zip(bars["start"].tolist(), bars["stop"].tolist(), strict=True):
        if stop - start > 2 * pixel:
            near = [one for one in shown if abs(one[0] - start) <= 2 * pixel + 0.1]
            assert any(abs(end - stop) <= 2 * pixel + 0.1 for _, end in near), (start, stop)


def test_a_curve_of_the_svg_stands_where_its_axes_say():
    """A line through three points: their pixels, by the numbers at both axes, are their values."""
    run = Run().task("a")
    for n, reward in ((1, -20.0), (2, 60.0), (3, 10.0)):
        run.metrics("a", float(n), n, 1000 * n, rollout__ep_rew_mean=reward)
    picture = VIEWS["curves"](run.journal()).svg(width=900)
    steps = axis_of(picture, "240")
    levels = re.findall(r'<text x="56" y="([\d.]+)" fill="#59636e" text-anchor="end">([\d.-]+)<', picture)
    (y0, v0), (y1, v1) = [(float(y) - 4, float(text)) for y, text in (levels[0], levels[-1])]
    (path,) = re.findall(r'd="M([\d. L]+)" fill="none" stroke="[^"]+" stroke-width="2"', picture)
    points = [tuple(map(float, point.split())) for point in path.split("L")]
    assert [steps(x) for x, _ in points] == pytest.approx([1000, 2000, 3000], abs=5)
    assert [v0 + (y - y0) / (y1 - y0) * (v1 - v0) for _, y in points] == pytest.approx([-20, 60, 10], abs=0.3)


def test_very_many_points_in_time_are_drawn_too():
    """Some 500 planned starts and arrivals, more than a picture has columns: merged, of their colours."""
    outcome = simulate_warmup(WarmupWorkload(n_rounds=90, n_workers=3), "saa")
    view = VIEWS["waterfall"](Journal(streams={"warmup-sim": outcome.stream}), n_rounds=100)
    assert len(view.columns["dots"]["start"]) > 180
    picture = view.svg()
    for style in [view.facts["series"][k] for k in set(view.columns["dots"]["series"].tolist())]:
        assert f'fill="{style["colour"]}" opacity="1"' in picture


@pytest.mark.parametrize("name", AXES)
def test_axes_say_quantity_and_unit(name):
    """In the SVG and in the figure, word for word."""
    view, (x, y) = drawn("faults", name), AXES[name]
    layout = json.loads(view.figure().to_json())["layout"]
    assert layout["xaxis"]["title"]["text"] == x
    assert (f">{x}</text>" in view.svg()) == bool(len(next(iter(view.columns.values()))["x" if y else "start"]))
    if y is not None:
        assert layout["yaxis"]["title"]["text"] == y


HOSTILE = "<script>alert(1)</script>&amp;\"'"


@pytest.mark.parametrize("name", VIEWS)
def test_names_of_users_stay_text(name):
    """A task whose name is markup is nowhere markup: not in SVG, HTML or figure; CSV and JSON hold it as it is."""
    run = Run().slot().task(HOSTILE)
    run.lease(HOSTILE, 0.0, 0.5, 2.0, computed=1.0).metrics(HOSTILE, 2.0, 1, 10, rollout__ep_rew_mean=1.0)
    run.sent(HOSTILE, 1, 3.0, start_after_s=0.5, action="start", candidates=((0.5, 0.25, 0.5), (None, 1.0, 0.0)))
    run.arrived(HOSTILE, 4.0, 2).ready(HOSTILE, 4.5, 0.25)
    view = VIEWS[name](run.journal())
    for form in (view.svg(), view.html(), view.figure().to_json()):
        assert "<script" not in form
        assert "\\u003cscript" not in form
    assert [list(row) for row in json.loads(view.json())["rows"]] == view.rows()


@pytest.mark.parametrize("name", VIEWS)
def test_after_the_first_rows_there_is_a_picture_in_every_form(name):
    """A pool that has only opened, a slot alone, a task that has only begun: drawn, with a sentence."""
    rows = list(entries_of(two_tasks().journal()))
    headers = {stream: record for stream, record in rows if record.letter == "h"}
    assert len(headers) == 3
    for stream, header in headers.items():
        first = next(record for of, record in rows if of == stream and record is not header)
        for records in ((), (first,)):
            part = Stream(header=header, records=records, torn=False, source=stream)
            view = VIEWS[name](Journal(streams={stream: part}))
            assert view.sentence
            assert view.sentence in html.unescape(view.svg())
            assert set(view._repr_mimebundle_()) == {"text/plain", "text/html", "application/vnd.plotly.v1+json"}


@pytest.mark.parametrize(
    ("low", "high", "most", "clock"),
    [
        (0.0, 1.0, 3, False),
        (-7.3, 91.0, 8, False),
        (0.0, 86400.0, 9, True),
        (1e-9, 3e-9, 4, False),
        (3.0, 250.0, 5, True),
    ],
)
def test_ticks_lie_evenly_within_the_span(low, high, most, clock):
    """Round steps, none outside, none missing, and not more than asked for by more than one."""
    step, at = svg.ticks(low, high, most, clock=clock)
    assert all(low - step * 1e-6 <= tick <= high + step * 1e-6 for tick in at)
    assert all(b - a == pytest.approx(step) for a, b in pairwise(at))
    assert at[0] - low < step * (1 + 1e-6)
    assert high - at[-1] < step * (1 + 1e-6)
    assert 2 <= len(at) <= most + 1
    mantissa = float(f"{step:e}".partition("e")[0])
    assert mantissa in {1.0, 2.0, 5.0} or (clock and step in svg._CLOCK)


def test_a_span_of_nothing_has_one_tick():
    """A picture of a single moment."""
    assert svg.ticks(3.0, 3.0, 5) == (1.0, [3.0])
