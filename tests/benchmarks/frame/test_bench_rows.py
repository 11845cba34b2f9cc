"""A report's figures, its JSON form, and its exit code."""

import json

import pytest

from benchmarks.frame.report import Machine, Report
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up, quantile, spread_of
from drlnb.records.errors import ConfigError


def report(*rows, load_1min=0.1):
    facts = Machine(cpu="abacus", n_cpus=2, memory_bytes=2**31, system="wood", load_1min=load_1min)
    return Report(bench="runtime", machine=facts, versions={"python": "3.11.0"}, rows=list(rows))


def timed(*samples, baseline=(), bar=None, **more):
    against = {"against": "a snail"} if baseline else {}
    return Row(id="hop", title="a hop", samples=samples, baseline_samples=baseline, bar=bar, **against, **more)


def test_quantile_is_linear_between_neighbours():
    """The lower tenth of 0, 10, 20 lies a fifth of the way from 0 to 10."""
    assert quantile([20.0, 0.0, 10.0], 0.1) == pytest.approx(2.0)
    assert quantile([7.0], 0.9) == 7.0
    assert quantile([1.0, 2.0, 3.0, 10.0], 0.5) == 2.5


def test_ways_are_measured_in_turn():
    """A B A B: what each came to, in order."""
    calls = []
    ways = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    assert in_turn(2, ways) == {"a": [1, 3], "b": [2, 4]}
    assert calls == ["a", "b", "a", "b"]


def test_spread_names_its_kind():
    """Few samples: their ends; ten or more: p10..p90, so that one outlier does not speak for all."""
    assert spread_of([3.0, 1.0]) == {"kind": "min..max", "low": 1.0, "high": 3.0, "n": 2}
    many = spread_of([float(i) for i in range(10)] + [1000.0])
    assert many == {"kind": "p10..p90", "low": 1.0, "high": 9.0, "n": 11}
    assert spread_of([]) is None


def test_ratio_is_of_the_medians_and_its_spread_of_the_pairs():
    """Two turns, 2 v 10 and 4 v 16: medians 3 v 13, pairs 1/5 and 1/4."""
    row = Row(id="hop", title="a hop", against="a snail", **pair_up([[2.0], [4.0]], [[10.0], [16.0]]))
    assert (row.value, row.baseline) == (3.0, 13.0)
    assert row.ratio == pytest.approx(3 / 13)
    assert row.spread["ratio"] == {"kind": "min..max", "low": 0.2, "high": 0.25, "n": 2}


def test_pairs_need_both_halves():
    """A turn without its baseline is a defect of the bench, not a row."""
    with pytest.raises(ValueError, match="zip"):
        pair_up([[1.0], [2.0]], [[1.0]])


@pytest.mark.parametrize(
    ("bar", "holds"),
    [(Bar("ratio", 0.1), True), (Bar("ratio", 0.09), False), (Bar("value", 1.0), True), (None, None)],
)
def test_holds_means_at_most(bar, holds):
    """A bar that is just met holds."""
    assert timed(1.0, baseline=(10.0,), bar=bar).holds is holds


def test_a_bar_on_nothing_is_neither_kept_nor_missed():
    """Without its baseline a ratio is unknown."""
    row = Row(id="hop", title="a hop", samples=(1.0,), against="a snail", bar=Bar("ratio", 0.1), not_measured="skipped")
    assert (row.ratio, row.holds, row.measured) == (None, None, False)


def test_a_count_of_zero_keeps_a_bar_of_zero():
    """Nothing left is what orphans ask for; one left misses."""
    assert timed(0.0, unit="processes", bar=Bar("value", 0.0)).holds is True
    assert timed(1.0, unit="processes", bar=Bar("value", 0.0)).holds is False


def test_bars_are_checked_when_they_are_written_down():
    """A bar on a ratio needs something to divide by; a bar on anything else does not exist."""
    with pytest.raises(ValueError, match="row hop: a bar on the ratio needs a baseline"):
        Row(id="hop", title="a hop", bar=Bar("ratio", 0.1))
    with pytest.raises(ValueError, match="'median'"):
        Bar("median", 1.0)


def test_json_has_the_form_of_every_bench(tmp_path):
    """Exactly these keys, in this order; the file is whole JSON and no part of it is left beside it."""
    path = tmp_path / "rows.json"
    report(timed(0.5, baseline=(10.0,), bar=Bar("ratio", 1 / 10))).write(path)
    plain = json.loads(path.read_text())
    assert list(plain) == ["bench", "machine", "versions", "rows"]
    assert plain["rows"] == [
        {
            "id": "hop",
            "what": "a hop, s; v a snail",
            "baseline": 10.0,
            "value": 0.5,
            "ratio": 0.05,
            "spread": {
                "value": {"kind": "min..max", "low": 0.5, "high": 0.5, "n": 1},
                "baseline": {"kind": "min..max", "low": 10.0, "high": 10.0, "n": 1},
                "ratio": None,
            },
            "bar": "ratio <= 1/10",
            "holds": True,
            "binding": True,
            "origin": "measured",
        }
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_a_row_that_was_not_measured_says_why_in_json():
    """Its value is null and its words hold the reason; a row without a bar binds nobody."""
    plain = Row(id="hop", title="a hop", not_measured="no legs").to_plain()
    assert (plain["value"], plain["holds"], plain["binding"]) == (None, None, False)
    assert "not measured: no legs" in plain["what"]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    """The person gave the path, so it is their input that is wrong."""
    with pytest.raises(ConfigError, match=r"nowhere/rows\.json cannot be written: No such file"):
        report().write(tmp_path / "nowhere" / "rows.json")


@pytest.mark.parametrize(
    ("row", "lax", "strict"),
    [
        (timed(1.0, bar=Bar("value", 2.0)), 0, 0),
        (timed(3.0, bar=Bar("value", 2.0)), 0, 1),
        (timed(3.0, bar=Bar("value", 2.0), binding=False), 0, 0),
        (timed(not_measured="broke"), 1, 1),
        (timed(1.0, not_measured="baseline left out", skipped=True), 0, 0),
    ],
)
def test_missed_bars_are_data_unless_strict(row, lax, strict):
    """Exit 0 when the rows could be measured; --strict minds binding bars, too."""
    assert (report(row).exit_code(strict=False), report(row).exit_code(strict=True)) == (lax, strict)


def test_lines_show_figures_spread_bar_and_verdict():
    """What a person reads: small times in milliseconds, the kind of spread, the bar and whether it holds."""
    row = timed(0.001, 0.002, 0.003, baseline=(0.010,), bar=Bar("value", 0.005))
    assert row.lines() == [
        "hop: a hop",
        "    2 ms (min..max 1 ms .. 3 ms, n=3)  ratio 0.2  [value <= 5 ms: holds]",
        "    v 10 ms: a snail",
    ]
    assert "MISSED" in timed(0.006, bar=Bar("value", 0.005)).lines()[1]
    assert timed(not_measured="no legs").lines()[-1] == "    not measured: no legs"


def test_a_busy_machine_is_named():
    """Above half a core's worth of other work the figures are called noisy."""
    assert report(load_1min=0.5).machine.notice == ""
    busy = report(load_1min=2.0)
    assert "2.00" in busy.machine.notice
    assert "idle" in busy.header()
    assert "idle" in busy.summary()
    assert "idle" not in report().header()


def test_the_worst_seed_decides():
    """500, 480 and 470 miss a bar of 475 on the worst, though the median is above."""
    row = Row("x", "x", (500.0, 480.0, 470.0), "reward", bar=Bar("worst", at_least=475))
    assert row.holds is False
    assert row.bar.text("reward") == "worst >= 475 reward"
    assert Row("x", "x", (475.0,), bar=Bar("worst", at_least=475)).holds is True


def test_a_bar_has_a_limit_or_two():
    """Both are told and both count; a bar without one is none."""
    bar = Bar("value", at_least=1.04, at_most=1.1)
    assert [timed(value, unit="x", bar=bar).holds for value in (1.03, 1.04, 1.1, 1.11)] == [False, True, True, False]
    assert bar.text("x") == "value >= 1.04 x and <= 1.1 x"
    with pytest.raises(ValueError, match="at_most, at_least or both"):
        Bar("value")


def test_an_interval_of_the_value_stands_for_how_far_samples_lie_apart():
    """In words and as JSON."""
    row = Row("x", "x", (2.0,), "x", interval={"kind": "95 %", "low": 1.9, "high": 2.2, "n": 27})
    assert row.to_plain()["spread"]["value"] == {"kind": "95 %", "low": 1.9, "high": 2.2, "n": 27}
    assert row.lines()[1] == "    2 x (95 % 1.9 x .. 2.2 x, n=27)"
