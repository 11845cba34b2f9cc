"""Ratios, health and regimes: what a picture says is what stands in its table."""

import math

import pytest

from drlnb.views.placement import compared
from drlnb.views.placement.compared import Cell, Health, PlannerRatio, Ratio, Scored

PER_100_DAYS = 1 / (100 * 86_400)


@pytest.mark.parametrize(
    ("interval", "said", "told"),
    [
        (Ratio(1.0704, 1.05, 1.09, 20), "is worth 7.0 % (5.0..9.0)", (False, False)),
        (Ratio(1.002, 0.999, 1.004, 20), "is worth 0.2 % (-0.1..0.4)", (True, False)),
        (Ratio(1.01, 0.99, 1.02, 20), "is worth 1.0 % (-1.0..2.0)", (False, True)),
        (Ratio(1.003, 0.96, 1.05, 20), "is worth 0.3 % (-4.0..5.0)", (False, True)),
        (Ratio(1.01, 1.004, 1.02, 20), "is worth 1.0 % (0.4..2.0)", (False, False)),
        (Ratio(0.9997, 0.9996, 0.9999, 20), "is worth 0.0 % (0.0..0.0)", (True, False)),
        (Ratio(0.97, 0.95, 0.99, 20), "is worth -3.0 % (-5.0..-1.0)", (False, False)),
        (Ratio(0.9, 0.85, 0.95, 20), "is worth -10.0 % (-15.0..-5.0)", (False, False)),
        (Ratio(1.006, 1.0, 1.01, 9), "is worth 0.6 % (0.0..1.0)", (False, True)),
        (Ratio(1.0, math.nan, math.nan, 1), "is worth 0.0 % in one window", (False, True)),
    ],
)
def test_failure_awareness_is_worth_what_its_interval_says(interval, said, told):
    """Nothing, within half a percent, and for certain within two; a wide interval leaves it open."""
    assert (interval.null, interval.open) == told
    null = "null regime: " if interval.null else ""
    assert compared.worth(interval) == f"{null}at these settings failure awareness {said}"


def came(planner, ratio, low, high, hindsight=False):
    """Return what a planner came to."""
    return PlannerRatio(
        planner=planner,
        ratio=Ratio(ratio, low, high, 20),
        makespan_s=7200 * ratio,
        lost_slot_s=3600.0,
        hindsight=hindsight,
    )


def test_ratios_are_bars_from_one_with_their_intervals_and_the_bound_is_marked():
    """Shorter times lie to the left; hindsight is hatched, and no planner."""
    rows = [
        came("random", 1.1, 1.05, 1.2),
        came("ect", 0.8, 0.7, 0.9),
        came("best of 8", 0.9, 0.9, 0.9, hindsight=True),
    ]
    view = compared.ratios(rows, "healthiest", Ratio(1.1, 1.05, 1.2, 20), 0.5)
    assert view.rows() == [
        ["random", 1.1, 1.05, 1.2, pytest.approx(2.2), 1.0, "takes more"],
        ["ect", 0.8, 0.7, 0.9, pytest.approx(1.6), 1.0, "takes less time"],
        ["best of 8", 0.9, 0.9, 0.9, pytest.approx(1.8), 1.0, "hindsight: no planner"],
    ]
    bars, dots = view.columns["bars"], view.columns["dots"]
    assert list(zip(bars["start"], bars["stop"], strict=True)) == [(1.0, 1.1), (0.8, 1.0), (0.9, 1.0)]
    assert dots["start"].tolist() == [1.05, 1.2, 0.7, 0.9]
    assert {mark["label"]: mark["t"] for mark in view.facts["marks"]} == {"1": 1.0, "bound": 0.5}
    assert view.facts["span"][0] < 0.5
    assert view.facts["span"][1] > 1.2
    assert view.facts["series"][2]["hatch"] == "x"


def test_one_window_has_no_interval_to_draw():
    """Nothing can be said of others; the bars are drawn all the same."""
    alone = Ratio(0.8, math.nan, math.nan, 1)
    row = PlannerRatio(planner="ect", ratio=alone, makespan_s=7200.0, lost_slot_s=0.0)
    view = compared.ratios([row], "healthiest", alone, 0.5)
    assert str(alone) == "0.800 in one window"
    assert str(Ratio(0.8, 0.7, 0.9, 2)) == "0.800 (0.700..0.900)"
    assert view.facts["span"] == [pytest.approx(0.48), pytest.approx(1.02)]
    assert view.columns["bars"]["stop"].tolist() == [1.0]
    assert len(view.columns["waits"]["start"]) == len(view.columns["dots"]["start"]) == 0
    assert view.svg().count("nan") == 0


def test_lemons_are_named_and_the_illest_slots_come_first():
    """A lemon's interval lies above twice the mean of all, here 3; what nobody knows has no mark."""
    of = [
        Health(
            slot=f"n0/{i}",
            mean_hz=mean * PER_100_DAYS,
            low_hz=low * PER_100_DAYS,
            high_hz=high * PER_100_DAYS,
            true_hz=true * PER_100_DAYS,
            n_seen=n,
        )
        for i, (mean, low, high, true, n) in enumerate([
            (1, 0.5, 2, 1.1, 0),
            (9, 7, 12, 10, 8),
            (1, 0.5, 2, math.nan, 0),
            (1, 0.5, 9, 0.9, 1),
        ])
    ]
    view = compared.health(of, 30)
    assert view.sentence == "9 failures of 4 slots seen in 30 days; 1 lemon: n0/1"
    rows = view.rows()
    assert rows[0] == ["n0/1", *map(pytest.approx, (9, 7, 12, 10, 8)), "lemon"]
    assert [row[0] for row in rows] == ["n0/1", "n0/0", "n0/2", "n0/3"]
    assert len(view.columns["dots"]["start"]) == 3
    assert view.facts["span"][1] >= 12


def test_null_regimes_are_greyed():
    """A cell per regime, named at its axis by its days; the level is that of its ratio."""
    cells = [
        Cell(mtbf_days=days, checkpoint=name, ratio=Ratio(*ratio, 20))
        for days, name, ratio in [
            (7.0, "none", (1.3, 1.2, 1.4)), (337.0, "none", (1.01, 0.98, 1.04)),
            (7.0, "1 h", (1.04, 1.02, 1.06)), (337.0, "1 h", (1.0, 0.999, 1.001)),
        ]
    ]  # fmt: skip
    view = compared.regimes(cells)
    assert [row[-1] for row in view.rows()] == ["10 % or more", "too few windows to tell", "3 to 10 %", "null regime"]
    assert view.sentence == (
        "failure awareness is worth nothing in 1 of 4 regimes, too few windows tell of 1; 30.0 % at 7 days, "
        "checkpoints: none"
    )
    assert view.facts["x"]["words"] == ["7", "337"]
    assert ">337<" in view.svg()
    assert view.figure().layout.xaxis.ticktext == ("7", "337")
    assert compared.regimes(cells[3:]).sentence == "failure awareness is worth nothing in 1 of 1 regimes"
    of_one = Cell(mtbf_days=7.0, checkpoint="none", ratio=Ratio(1.6, math.nan, math.nan, 1))
    said = compared.regimes([of_one]).sentence
    assert said == "failure awareness is worth nothing in 0 of 1 regimes, too few windows tell of 1"


def test_a_score_stands_beside_the_best_of_random():
    """By hand and the planner, each divided by it; the jobs are listed by number."""
    of = [
        Scored(who=who, makespan_s=7200 * ratio, ratio=ratio, n_restarts=1)
        for who, ratio in (("by hand", 1.1), ("ect", 0.9), ("best of 8 random", 1.0))
    ]
    view = compared.by_hand(of, ["2 slots for 1 h 0 min", "1 slot for 2 h 0 min"])
    assert view.sentence == "by hand 1.100, ect 0.900 x the best of 8 random, same faults"
    assert view.notes == ("jobs to place: 1. 2 slots for 1 h 0 min, 2. 1 slot for 2 h 0 min",)
    assert [row[2] for row in view.rows()] == [1.1, 0.9, 1.0]
