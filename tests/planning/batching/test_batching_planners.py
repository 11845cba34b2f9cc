"""How many steps each collector makes: equal ones, or by the measured speed of its node."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.batching import COLLECT, BatchPlan, BatchView, collect_members, collect_steps, env_shares
from drlnb.planning.registry import Answer, PlannerFailed
from drlnb.records.columns.batching import BatchPlanned


def view(*sample_s, n_steps=128, n_envs=None):
    n = len(sample_s)
    n_envs = n_envs or (1,) * n
    return BatchView(
        round=3,
        role="collect",
        n_units=n_steps * n,
        members=collect_members(range(n), n_envs, sample_s, n_steps=n_steps),
        n_steps=n_steps,
        collectors=tuple(range(n)),
        n_envs=n_envs,
        nodes=tuple(f"n{i}" for i in range(n)),
    )


def steps(name, seen):
    return collect_steps(seen, COLLECT.ask(COLLECT.build(name), seen))


def test_equal_gives_everyone_the_algorithms_steps():
    """As Stable-Baselines3: `n_steps` per environment, however slow a node is."""
    assert steps("equal", view(0.1, 0.4)) == (128, 128)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (view(0.1, 0.1), (128, 128)),
        # 256 samples; a node of a third of the speed makes a quarter of them.
        (view(0.1, 0.3), (192, 64)),
        # 30 : 15 : 10 parts of 96 samples are 52.36, 26.18, 17.45: 52, 26, 17, and one more for the largest rest.
        (view(0.01, 0.02, 0.03, n_steps=32), (52, 26, 18)),
        # Bounds: 128 / 4 for the slow one, what is left for the other.
        (view(0.001, 1.0), (224, 32)),
        # The fast one has twice the environments, so both need the same time for a step: 3 x 128 samples.
        (view(0.1, 0.2, n_envs=(2, 1)), (128, 128)),
        # Not measured everywhere yet.
        (view(0.1, None), (128, 128)),
        (view(None, None), (128, 128)),
    ],
)
def test_proportional_follows_the_measured_speed(seen, expected):
    """Shares worked by hand."""
    assert steps("proportional", seen) == expected


def test_proportional_keeps_equal_steps_where_nobody_can_give():
    """3 and 4 environments, 21 samples: the slow node is at its bound of 1, and 18 samples are no multiple of 4."""
    assert steps("proportional", view(1.0, 0.001, n_steps=3, n_envs=(3, 4))) == (3, 3)
    # 35 samples: the slow ones at their bound of 4 make 16, and 19 are no multiple of 3
    assert steps("proportional", view(1.0, 1.0, 0.001, n_steps=5, n_envs=(2, 2, 3))) == (5, 5, 5)


def test_proportional_trades_steps_between_two_sizes():
    """3 and 2 environments, 5 x 8 = 40 samples: 3a + 2b = 40 has no solution next to every ratio, but each is even."""
    a, b = steps("proportional", view(0.3, 0.1, n_steps=8, n_envs=(3, 2)))
    assert 3 * a + 2 * b == 40
    assert a < 8 < b


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            st.lists(st.floats(1e-5, 10.0), min_size=n, max_size=n), st.integers(n, 3 * n), st.integers(1, 300)
        )
    )
)
def test_proportional_keeps_the_rounds_samples_within_bounds(case):
    """Whatever the speeds: as many samples as before, none below a quarter, none above four times."""
    sample_s, n_envs, n_steps = case
    sizes = tuple(map(len, env_shares(n_envs, len(sample_s))))
    seen = view(*sample_s, n_steps=n_steps, n_envs=sizes)
    plan = steps("proportional", seen)
    assert sum(n * k for n, k in zip(sizes, plan, strict=True)) == n_steps * n_envs
    assert all(max(1, n_steps / 4) <= k <= 4 * n_steps for k in plan)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6))
def test_proportional_gives_a_slower_node_no_more(sample_s):
    """Among collectors with as many environments, up to the one step of the rounding."""
    plan = steps("proportional", view(*sample_s, n_steps=256))
    for slow, n_slow in zip(sample_s, plan, strict=True):
        assert all(n_slow <= n_fast + 1 for fast, n_fast in zip(sample_s, plan, strict=True) if fast < slow)


class Own:
    """Returns what it was given."""

    name = "own"

    def __init__(self, plan):
        self._plan = plan

    def plan(self, view):
        return self._plan


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (None, "a plan must be a BatchPlan, got None"),
        (BatchPlan(n_steps=(1,)), "n_steps must be 2 numbers, one per collector, got 1"),
        (BatchPlan(n_steps=(1, 0)), "n_steps of collector 1 must be a whole number >= 1, got 0"),
        (BatchPlan(n_steps=(2.5, 1)), "n_steps of collector 0 must be a whole number >= 1, got 2.5"),
        (BatchPlan(n_steps=(True, 1)), "n_steps of collector 0 must be a whole number >= 1, got True"),
        (BatchPlan(n_steps=(1, 1), learners=(0,)), "learners must be 2 numbers, one per collector, or none, got 1"),
        (
            BatchPlan(n_steps=(1, 1), learners=(0, -1)),
            "the learner of collector 1 must be a whole number >= 0, got -1",
        ),
        (BatchPlan(n_steps=(1, 1), learners=(4, 7)), "learners names 2 learners, and this task has n_learners = 1"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan, problem):
    """The collector is named."""
    with pytest.raises(PlannerFailed, match=f"collect planner own: {problem}"):
        COLLECT.ask(Own(plan), view(0.1, 0.1))


def test_what_cannot_be_computed_in_parts_has_one_learner():
    """Epochs over all batches, a replay ring; the same learner for all is no part."""
    whole = replace(view(0.1, 0.1), divisible=False)
    assert COLLECT.ask(Own(BatchPlan(n_steps=(1, 1), learners=(3, 3))), whole).learners == (3, 3)
    with pytest.raises(
        PlannerFailed, match="gradient cannot be computed in parts, so all shares need the same learner"
    ):
        COLLECT.ask(Own(BatchPlan(n_steps=(1, 1), learners=(0, 1))), whole)


def test_a_plan_comes_back_from_the_journal():
    """From the decision's record."""
    planned = BatchPlanned(round=3, planner="own", collectors=(0, 1), n_steps=(5, 7))
    assert COLLECT.recorded(view(0.1, 0.1), Answer([planned])) == BatchPlan(n_steps=(5, 7))
    assert COLLECT.recorded(view(0.1, 0.1), Answer()) is None


def test_a_sample_too_few_for_any_step_comes_from_a_trade():
    """24 samples by 12 and 7: 7.58 and 8.84 steps of 2 and 1; 7 and 9 leave a sample, for which 9 and 7 become 8."""
    seen = view(0.01, 0.01, n_steps=8, n_envs=(2, 1))
    assert collect_steps(seen, BatchPlan(sizes=(6, 7))) == (8, 8)
