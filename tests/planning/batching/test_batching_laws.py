"""Proportional batches against every plan that there is, on rounds small enough to list them all."""

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from drlnb.planning.batching import COLLECT, BatchView, collect_members, collect_steps

#: Paces of nodes in seconds per sample: a float holds each, and its products with small whole numbers, exactly.
PACES = st.sampled_from([2.0**-k * m for k in range(3, 8) for m in (1, 3, 5)])


def planned(paces, n_envs, n_steps):
    n = len(paces)
    view = BatchView(
        round=1,
        role="collect",
        n_units=n_steps * n,
        members=collect_members(range(n), n_envs, paces, n_steps=n_steps),
        n_steps=n_steps,
        collectors=tuple(range(n)),
        n_envs=tuple(n_envs),
    )
    return collect_steps(view, COLLECT.ask(COLLECT.build("proportional"), view))


def longest(paces, n_envs, steps):
    """Seconds until the last collector has sent."""
    return max(pace * n * k for pace, n, k in zip(paces, n_envs, steps, strict=True))


def every_plan(n_envs, n_steps):
    """All whole numbers of steps from a quarter, 4 at least, to four times `n_steps` that make as many samples."""
    bounds = range(min(n_steps, max(4, -(-n_steps // 4))), 4 * n_steps + 1)
    wanted = n_steps * sum(n_envs)
    for steps in itertools.product(bounds, repeat=len(n_envs)):
        if sum(n * k for n, k in zip(n_envs, steps, strict=True)) == wanted:
            yield steps


@settings(max_examples=25)
@given(st.lists(PACES, min_size=1, max_size=3), st.integers(1, 5))
@example([0.125, 0.125], 1)
@example([0.0078125, 0.625], 8)
def test_no_plan_of_equal_collectors_is_a_step_shorter(paces, n_steps):
    """The round's samples are dealt so that the last collector is at most one step of its own behind the best plan."""
    n_envs = [1] * len(paces)
    steps = planned(paces, n_envs, n_steps)
    best = min(longest(paces, n_envs, each) for each in every_plan(n_envs, n_steps))
    assert longest(paces, n_envs, steps) <= best + max(paces) * 1.000001


@settings(max_examples=25)
@given(st.lists(st.tuples(PACES, st.integers(2, 3)), min_size=2, max_size=3), st.integers(1, 4))
def test_a_plan_is_one_of_those_that_there_are(collectors, n_steps):
    """Whatever the collectors' sizes: within the bounds, with the round's samples, or the algorithm's own steps."""
    paces, n_envs = zip(*collectors, strict=True)
    steps = planned(paces, n_envs, n_steps)
    assert steps in set(every_plan(n_envs, n_steps))
    equal = (n_steps,) * len(paces)
    slack = max(pace * n for pace, n in collectors)
    assert longest(paces, n_envs, steps) <= longest(paces, n_envs, equal) + slack


@given(st.lists(PACES, min_size=1, max_size=6), st.integers(1, 200), st.integers(-6, 6))
def test_the_unit_of_time_does_not_matter(paces, n_steps, power):
    """A machine that is twice as slow in everything deals as before."""
    n_envs = [1] * len(paces)
    assert planned([pace * 2.0**power for pace in paces], n_envs, n_steps) == planned(paces, n_envs, n_steps)


@given(st.lists(PACES, min_size=2, max_size=5, unique=True), st.integers(1, 100), st.randoms(use_true_random=False))
def test_the_numbers_of_collectors_do_not_matter(paces, n_steps, random):
    """In another order each node makes what it made, but for a step where two rests are equal."""
    n_envs = [1] * len(paces)
    order = random.sample(range(len(paces)), len(paces))
    steps, moved = planned(paces, n_envs, n_steps), planned([paces[i] for i in order], n_envs, n_steps)
    assert all(abs(moved[k] - steps[i]) <= 1 for k, i in enumerate(order))


@given(PACES, st.integers(1, 6), st.integers(1, 300))
def test_nodes_of_one_speed_make_the_algorithms_own_steps(pace, n, n_steps):
    """Then proportional is equal."""
    assert planned([pace] * n, [1] * n, n_steps) == (n_steps,) * n
