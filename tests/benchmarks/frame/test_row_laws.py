"""Rows of benches under any samples: figures, spreads and verdicts agree, in every form that a row takes."""

import json
import statistics
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.frame.rows import Bar, Row, in_turn, pair_up, quantile, spread_of

TIMES = st.floats(1e-6, 1e3)
SAMPLES = st.lists(TIMES, min_size=1, max_size=30)
BLOCKS = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[st.lists(st.lists(TIMES, min_size=1, max_size=4), min_size=n, max_size=n)] * 2)
)
BARS = st.builds(
    lambda on, least, limit: Bar(on, **{"at_least" if least else "at_most": limit}),
    st.sampled_from(["ratio", "value", "worst"]),
    st.booleans(),
    st.floats(1e-3, 1e3),
)


@given(SAMPLES)
def test_a_value_is_the_median_and_lies_in_its_spread(samples):
    """By another method of the standard library; a spread never leaves the samples."""
    row = Row("x", "x", tuple(samples))
    assert row.value == pytest.approx(statistics.median(samples))
    spread = spread_of(samples)
    assert min(samples) <= spread["low"] <= spread["high"] <= max(samples) * (1 + 1e-12)
    assert spread["low"] <= row.value * (1 + 1e-12)
    assert row.value <= spread["high"] * (1 + 1e-12)
    assert (spread["n"], spread["kind"]) == (len(samples), "min..max" if len(samples) < 10 else "p10..p90")


@given(SAMPLES, st.floats(0, 1), st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(samples, q, random):
    """Not for quantiles, hence for no figure of a row."""
    moved = random.sample(samples, len(samples))
    assert quantile(moved, q) == quantile(samples, q)
    assert Row("x", "x", tuple(moved)).spread == Row("x", "x", tuple(samples)).spread


@given(BLOCKS)
def test_pairing_keeps_every_sample_and_one_ratio_per_turn(blocks):
    """Against the standard library's medians, turn by turn."""
    mine, theirs = blocks
    paired = pair_up(mine, theirs)
    assert paired["samples"] == tuple(chain(*mine))
    assert paired["baseline_samples"] == tuple(chain(*theirs))
    assert paired["pairs"] == pytest.approx([
        statistics.median(a) / statistics.median(b) for a, b in zip(mine, theirs, strict=True)
    ])


@given(SAMPLES, SAMPLES, st.floats(0.25, 4.0))
def test_a_machine_that_is_slower_in_everything_keeps_the_ratio(samples, baseline, factor):
    """Which is why bars are ratios."""
    rows = [
        Row("x", "x", tuple(t * k for t in samples), against="y", baseline_samples=tuple(t * k for t in baseline))
        for k in (1.0, factor)
    ]
    assert rows[1].ratio == pytest.approx(rows[0].ratio)


@given(SAMPLES, SAMPLES, BARS)
def test_a_verdict_is_that_of_the_figure_in_every_form(samples, baseline, bar):
    """The bar's figure is compared with its limit; text and JSON show the same verdict."""
    row = Row("x", "x", tuple(samples), against="y", baseline_samples=tuple(baseline), bar=bar)
    figure = {
        "ratio": statistics.median(samples) / statistics.median(baseline),
        "value": statistics.median(samples),
        "worst": min(samples),
    }[bar.on]
    limit = bar.at_least if bar.at_most is None else bar.at_most
    if figure != pytest.approx(limit):
        assert row.holds is ((figure > limit) == (bar.at_most is None))
    plain = json.loads(json.dumps(row.to_plain()))
    assert plain["holds"] is row.holds
    assert ("MISSED" in "\n".join(row.lines())) is (row.holds is False)
    assert plain["bar"] in "\n".join(row.lines())


@given(st.integers(0, 5), st.lists(st.text(min_size=1), unique=True, min_size=1, max_size=4))
def test_ways_take_turns_whatever_they_are_called(n, names):
    """Each as often as the others, and never twice before all others had theirs."""
    calls = []
    measured = in_turn(n, {name: lambda name=name: calls.append(name) or len(calls) for name in names})
    assert calls == names * n
    assert {name: len(turns) for name, turns in measured.items()} == dict.fromkeys(names, n)
    assert sorted(chain(*measured.values())) == list(range(1, len(calls) + 1))
