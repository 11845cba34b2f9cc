"""A guard follows whichever of its planners would have been fastest, and never one that does harm for long."""

import json
import math

import pytest

from drlnb.planning.batching import BATCHING, BatchPlan, BatchReport, BatchView, Member
from drlnb.planning.batching.guard import ShadowGuard


class Fixed:
    """Gives these shares always; remembers how many reports it has seen."""

    def __init__(self, *sizes):
        self.name, self.sizes = "fixed", sizes

    def plan(self, view):
        assert view.memory is None or view.memory["seen"] > 0
        return BatchPlan(sizes=self.sizes, speeds_hz=(10.0,) * len(self.sizes))

    def observe(self, memory, report):
        return {"seen": (memory or {"seen": 0})["seen"] + 1}


def _view(memory):
    members = tuple(Member(id=name, speed_hz=1.0) for name in "ab")
    return BatchView(round=0, role="update", n_units=10, members=members, memory=memory)


def _report(sizes, a_hz, b_hz=10.0, answered=(True, True)):
    worked = [n / hz if heard else None for n, hz, heard in zip(sizes, (a_hz, b_hz), answered, strict=True)]
    done = tuple(n * heard for n, heard in zip(sizes, answered, strict=True))
    return BatchReport(
        round=1,
        members=("a", "b"),
        sizes=sizes,
        n_done=done,
        compute_s=tuple(worked),
        elapsed_s=tuple(worked),
        duration_s=1.0,
    )


def _after(guard, speeds, memory=None):
    """Return what is remembered after a probe and splits in which member a has these speeds, and each plan's sizes."""
    memory = BATCHING.observe(guard, memory, _report((5, 5), 10.0))
    asked = []
    for a_hz in speeds:
        plan = guard.plan(_view(memory))
        asked.append(plan.sizes)
        memory = BATCHING.observe(guard, memory, _report(plan.sizes, a_hz))
    return memory, asked


def test_the_first_planner_leads_until_another_would_have_been_faster():
    """Member a is as fast as b: halves are best.  Then it takes 4 times as long: 2 to 8 are, and are followed.

    By hand: halves take 2 s a split then, 2 to 8 take .8 s: the logarithm of 2.5 is .916 a split for the other.  Of the
    ten splits before, in which halves took .5 s and the others .8 s, .47 a split are left, each a 50th of a half less.
    """
    guard = ShadowGuard((Fixed(5, 5), Fixed(2, 8)))
    memory, asked = _after(guard, [10.0] * 10)
    assert set(asked) == {(5, 5)}
    kept = 0.5 ** (1 / 50)
    lead = sum(math.log(0.8 / 0.5) * kept**k for k in range(10))
    assert memory["records"][1] - memory["records"][0] == pytest.approx(lead)
    n, weight = 0, sum(kept**k for k in range(10))
    while lead > -0.01 * weight:
        lead, weight, n = kept * lead - math.log(2.0 / 0.8), kept * weight + 1, n + 1
    sizes = []
    for _ in range(n + 1):
        sizes.append(guard.plan(_view(memory)).sizes)
        memory = BATCHING.observe(guard, memory, _report((5, 5), 2.5))
    assert sizes == [(5, 5)] * n + [(2, 8)]


def test_who_is_hardly_better_is_not_followed():
    """A hundredth of the time is the margin: 1 % is not beyond it, 1.2 % is."""
    for sizes, follows in (((5001, 4999), False), ((5100, 4900), True)):
        guard = ShadowGuard((Fixed(5000, 5000), Fixed(*sizes)))
        memory = BATCHING.observe(guard, None, _report((5000, 5000), 10.0))
        for _ in range(3):
            # b takes 2 % longer for each sample: shares of 5100 and 4900 take 2 % less
            memory = BATCHING.observe(guard, memory, _report((5000, 5000), 10.0, 9.0))
        assert (memory["leader"] == 1) is follows


def test_planners_in_the_shadow_learn_too():
    """Each gets every report, and its own memory; all of it is plain data."""
    memory, _ = _after(ShadowGuard((Fixed(5, 5), Fixed(2, 8))), [10.0] * 3)
    assert memory["memories"] == [{"seen": 4}, {"seen": 4}]
    assert json.loads(json.dumps(memory)) == memory


def test_who_has_not_answered_counts_as_expected():
    """Member b is not heard of: 10 units a second, as was planned.  Halves take .5 s, 2 to 8 take .8 s."""
    guard = ShadowGuard((Fixed(5, 5), Fixed(2, 8)))
    memory = BATCHING.observe(guard, None, _report((5, 5), 10.0))
    memory = BATCHING.observe(guard, memory, _report((5, 5), 10.0, answered=(True, False)))
    assert memory["records"] == pytest.approx([math.log(0.5), math.log(0.8)])
