"""What closed forms say, drawn: numbers by hand, and those of the design's tables."""

import numpy as np
import pytest

from drlnb.fleet.whatif.distribution import compute
from drlnb.planning.distribution import PRESETS, Link
from drlnb.views.distribution import computed
from drlnb.views.drawing.pictures import nothing

SIZE = 20_000_000
#: No latency, no processor time: a version takes one second through a card.
IDEAL = Link.of(float(SIZE), latency_s=0.0, overhead_s=0.0)


def points(view, label):
    """Return x and y of one line of a chart."""
    at = [line["label"] for line in view.facts["lines"]].index(label)
    drawn = view.columns["points"]
    mine = drawn["line"] == at
    return drawn["x"][mine], drawn["y"][mine]


@pytest.mark.parametrize(
    ("plan", "name", "times", "learner", "host"),
    [
        ("relay:m=4", "relay m=4", 2.75, 1.0, 1.75),  # 1 + 7/4
        ("relay:m=9", "relay m=8", 1.875, 1.0, 0.875),  # there are only 8 hosts: 1 + 7/8
        ("star", "star", 8.0, 8.0, 0.0),
        ("tree:k=4", "tree k=4", 5.0, 4.0, 1.0),  # 4 and then one each
        ("binomial", "binomial", 4.0, 4.0, 2.0),  # the learner serves host 4, which serves 6 and 5
        ("chain:c=1", "chain", 8.0, 1.0, 1.0),
    ],
)
def test_eight_hosts_by_hand(plan, name, times, learner, host):
    """Time in multiples of one version through one card, and what leaves the learner and the busiest host."""
    said = compute(plan, 8, SIZE, IDEAL)
    sweep, egress = computed.sweep(said), computed.egress(said)
    assert (said.name, sweep.origin, egress.origin) == (name, "computed", "computed")
    assert sweep.value("times") == pytest.approx(times)
    assert (egress.value("learner"), egress.value("host")) == pytest.approx((learner, host))
    assert sweep.sentence == (
        f"{name} to 8 hosts: {times:.2f} L, predicted {times:.1f} s, {1 / times:.3g} models/s; "
        f"the learner sends {learner:.2f} models"
    )


@pytest.mark.parametrize(
    ("plan", "rate"),
    [
        ("star", 0.20),
        ("tree", 1.72),
        ("tree:k=3,levels=9", 3.88),
        ("binomial", 6.4),
        ("chain", 4.7),
        ("relay:m=30", 5.35),
        ("relay", 13.3),
        ("multitree", 36.5),
    ],
)
def test_models_per_second_at_298_hosts(plan, rate):
    """As of the table of tests/planning/distribution/test_cost.py: 20 MB, 10 Gbit/s, costs like Python's."""
    view = computed.sweep(compute(plan, 298, SIZE, PRESETS["10GbE"]))
    assert view.value("rate") == pytest.approx(rate, rel=0.02)
    assert points(view, "bound")[1][0] == pytest.approx(1 / 0.018594, rel=0.001)


def test_the_relay_line_has_its_best_where_shards_take_as_long_as_messages():
    """Every m from 1 to n is on it, the best one of 298 hosts is 88, and the chosen one is a point of the line."""
    view = computed.sweep(compute("relay:m=30", 298, SIZE, PRESETS["10GbE"]))
    m, rate = points(view, "relay")
    assert m.tolist() == list(range(1, 299))
    assert m[np.argmax(rate)] == 88
    (x,), (y,) = points(view, "chosen: relay m=30")
    assert (x, y) == (30.0, rate[29])


def test_the_numbers_of_the_seed_are_marked_with_their_source():
    """10 and 30 relays, as far as there are so many hosts, beside the chosen number."""
    marks = {n: computed.sweep(compute("relay:m=2", n, SIZE, IDEAL)).facts["marks"] for n in (8, 100)}
    assert [(mark["t"], mark["label"]) for mark in marks[8]] == [(2.0, "chosen")]
    assert marks[100][1]["said"] == "m = 30, which the distribution patent gives for 298 machines"
    assert [mark["t"] for mark in marks[100]] == [10.0, 30.0, 2.0]


def test_bars_of_computed_and_simulated_bytes():
    """Four corners per bar, the learner's first, with room beside it; a row per host, empty where none is simulated."""
    said = compute("star", 2, SIZE, IDEAL)
    hollow, both = computed.egress(said), computed.egress(said, np.array([2.0, 0.5, 0.0]))
    x, y = points(hollow, "computed")
    assert x[:5].tolist() == pytest.approx([-1.9, -1.4, -1.4, -0.6, -0.6])
    assert x[-2:].tolist() == pytest.approx([1.4, 1.9])
    assert y.tolist() == [0, 0, 2, 2, 0, *[0] * 9]
    assert hollow.rows() == [["learner", 2.0, None], ["0", 0.0, None], ["1", 0.0, None]]
    assert [row[2] for row in both.rows()] == [2.0, 0.5, 0.0]
    assert both.origin == "computed and simulated"
    assert both.sentence.endswith("simulated: 2.00 models and 0.50 models")


def test_the_learners_bar_keeps_away_from_the_edge():
    """A bar of 298 hosts is thin: beside the first and the last there is room for a sixtieth of the picture."""
    x, _ = points(computed.egress(compute("chain", 298, SIZE, IDEAL)), "computed")
    assert (x[0], x[-1]) == pytest.approx((-1.4 - 299 / 60, 297.4 + 299 / 60))


def test_models_per_second_over_hosts_by_hand():
    """A star takes n times as long to n hosts; eight relays 1 + (n - 1) / 8; none is beyond the bound, 1 here."""
    view = computed.scaling(compute("relay:m=8", 16, SIZE, IDEAL))
    n, star = points(view, "star")
    assert (n[0], n[-1]) == (2.0, 300.0)
    assert star * n == pytest.approx(np.ones(len(n)))
    many = n >= 8
    assert points(view, "relay m=8")[1][many] == pytest.approx(1.0 / (1.0 + (n[many] - 1.0) / 8.0))
    few = n <= 152  # a shard of 128 KiB is the least
    assert points(view, "relay")[1][few] == pytest.approx(1.0 / (2.0 - 1.0 / n[few])), "with as many relays as hosts"
    assert points(view, "bound")[1] == pytest.approx(np.ones(len(n)))
    assert all(max(points(view, line["label"])[1]) <= 1.0 + 1e-9 for line in view.facts["lines"])
    assert [(mark["t"], mark["label"]) for mark in view.facts["marks"]] == [
        (100.0, "patent: 100"), (298.0, "patent: 298"), (16.0, "here: 16")
    ]  # fmt: skip
    assert view.sentence.endswith("models/s of 1 possible; relay m=8: 0.0261")


def test_a_plan_without_numbers_has_no_line_of_its_own():
    """It is that of its strategy; what is the fastest of all needs none either."""
    for plan in ("multitree", "auto"):
        view = computed.scaling(compute(plan, 16, SIZE, PRESETS["10GbE"]))
        assert [line["label"] for line in view.facts["lines"]][-1] == "bound"
        assert view.sentence.startswith("300 hosts: multitree is the fastest, 36.")


def test_what_was_measured_lies_on_the_sweep():
    """As points, with the words of what it is; the picture says that it is of both."""
    measured = "measured, 2 workers", np.array([1.0, 2.0]), np.array([0.5, 0.25])
    view = computed.sweep(compute("relay:m=2", 2, SIZE, IDEAL), "", measured)
    assert [axis.tolist() for axis in points(view, "measured, 2 workers")] == [[1.0, 2.0], [2.0, 4.0]]
    assert view.origin == "computed and measured"


def test_an_empty_picture_says_why():
    """In every form that it is shown in."""
    for module in ("chart", "timeline", "table"):
        view = nothing("x", module, "press Simulate")
        assert "press Simulate" in view.svg()
        assert view.rows() == []
