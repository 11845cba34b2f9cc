"""A swapper that learns by trials on real steps: what it learns is measured, saved, and moves no bit."""

import itertools
from contextlib import contextmanager
from statistics import median

import pytest
import torch

from drlnb import swap
from drlnb.planning.swapping.profile import SwapPlan
from drlnb.records.columns import swapping as words
from drlnb.records.errors import ConfigError
from tests.runtime.swapping.nets import differing, images, made, plain_step, state
from tests.runtime.swapping.rig import swapper


def trained(swapped, net, x, n_steps=1):
    for _ in range(n_steps):
        net.zero_grad()
        with swapped.step() as step:
            plain_step(net, x)
    return step


def need_bytes(x):
    """Return the peak of a step that keeps all, and what stays anyway."""
    net = made("residual")
    with swapper(net, planner="none", min_bytes=8192) as watched:
        peak_bytes = trained(watched, net, x).peak_bytes
        return peak_bytes, watched._fixed_bytes()


@contextmanager
def learning(planner, net, x):
    """Yield a swapper that has room for three quarters of what a plain step saves, and all that its machine says."""
    peak_bytes, fixed_bytes = need_bytes(x)
    budget = fixed_bytes + (peak_bytes - fixed_bytes) * 3 // 4
    with swapper(net, planner=planner, budget=budget, min_bytes=8192, seed=7) as swapped:
        records, obey = [], swapped._chooser._obey
        swapped._chooser._obey = lambda answer: (records.extend(answer), obey(answer))
        yield swapped, records


def of(kind, records):
    return [each for each in records if isinstance(each, kind)]


@pytest.mark.thorough
def test_the_table_that_live_steps_end_with_is_of_measured_costs():
    """Each cost is worked from the trial's steps, the table by another SARSA from the costs; the best plan stays."""
    net, x = made("residual"), images()
    with learning("qtable:n_trials=24,w=0.3,epsilon=0.5", net, x) as (swapped, records):
        budget, steps, learned = swapped.report().memory_budget_bytes, [], []
        while not of(words.SwapPlanKept, records):
            tried = of(words.SwapTrialStarted, records)
            step = trained(swapped, net, x)
            assert step.peak_bytes <= budget
            steps.append((step.step_s, step.peak_bytes))
            new, profile = of(words.SwapLearned, records)[len(learned) :], swapped.report().profile
            if new and tried:
                plain = swap.simulate(profile, SwapPlan.keeping(profile), n_samples=len(x))
                most = min(plain.peak_bytes, budget) - profile.fixed_bytes
                costs = [0.7 * s / plain.step_s + 0.3 * (n - profile.fixed_bytes) / most for s, n in steps[-3:]]
                assert new.pop(0).cost == pytest.approx(median(costs))
            assert {each.cost for each in new} <= {5.0}, "what does not fit is not run"
            learned = of(words.SwapLearned, records)
        kept = swapped.report().plan.key
    assert len(learned) == 24
    known, costs = {}, {}
    for now, after in itertools.pairwise(learned):
        costs.setdefault(now.plan_key, []).append(now.cost)
        if now.unit:
            before, then = (known.get((each.row, each.unit), 0.0) for each in (now, after))
            known[now.row, now.unit] = before + 0.5 * (now.cost + 0.9 * then - before)
            assert now.value == pytest.approx(known[now.row, now.unit])
    costs.setdefault(learned[-1].plan_key, []).append(learned[-1].cost)
    assert median(costs[kept]) == min(map(median, costs.values()))


@pytest.mark.thorough
def test_learning_moves_no_bit():
    """Forty steps under one plan after the other: the parameters of plain ones."""
    plain, net, x = made("residual"), made("residual"), images()
    with learning("qtable:epsilon=1", net, x) as (swapped, records):
        trained(swapped, net, x, 40)
    assert len({each.plan_key for each in of(words.SwapTrialStarted, records)}) > 4
    for _ in range(40):
        plain.zero_grad()
        plain_step(plain, x)
    assert differing(state(plain), state(net)) == []


@pytest.mark.thorough
def test_what_was_learned_is_saved_and_learned_on_with(tmp_path):
    """Trials on a part of the data, a file, and the rest of the course on other data (M10)."""
    net, other, x, path = made("residual"), made("residual"), images(), tmp_path / "learned.json"
    with learning("qtable:n_trials=16", net, x) as (swapped, records):
        while len(of(words.SwapLearned, records)) < 6:
            trained(swapped, net, x)
        swapped.save(path)
        known = swapped._chooser._machine.state
        plan = swapped.report().plan
    with learning("qtable:n_trials=16", other, x) as (swapped, after):
        swapped.load(path)
        assert swapped._chooser._machine.state.learned == known.learned
        assert swapped.report().plan == plan
        while not of(words.SwapPlanKept, after):
            trained(swapped, other, torch.flip(x, (0,)))
    first, last = ([each.trial for each in of(words.SwapLearned, some)] for some in (records, after))
    assert last[0] in {first[-1], first[-1] + 1}
    assert last[-1] == 16
    with swapper(made("residual"), planner="auto", budget="1GiB") as third:
        third.load(path)
        assert third.report().plan == plan, "who does not learn follows the plan"


def test_a_planner_that_would_wait_for_reports_is_refused():
    """It has ``observe``, which nothing would call."""

    class Hears:
        name = "hears"

        def plan(self, view):
            return SwapPlan.keeping(view.profile)

        def observe(self, memory, report):
            return memory

    with pytest.raises(ConfigError, match=r"swapping planner hears has observe\(memory, report\), which nobody would"):
        swap.Swapper(made("residual"), planner=Hears())
