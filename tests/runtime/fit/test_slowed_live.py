"""A member of a run that is slowed down on purpose, on real processes: it gets less, and all of it back."""

import time
from statistics import median

import pytest
from torch import nn

from drlnb.records import round as words
from drlnb.records.columns import batching, warmup
from drlnb.views.folds.fold import fold_of
from tests.runtime.fit.test_fit_gangs_live import assert_plain, task
from tests.runtime.laws import check_laws

pytestmark = pytest.mark.cluster


def each_takes_long(outputs, targets):
    """Take 0.5 ms for each sample, so that what members are given is what they take."""
    time.sleep(0.0005 * len(targets))
    return nn.functional.mse_loss(outputs, targets)


def slowed_rounds(orders, member):
    """Return the rounds in which a member was slow, and those before and after; nobody else was slow in any."""
    slow = sorted({order.round for order in orders if order.slowed > 1})
    assert {getattr(order, "slot", str(getattr(order, "collector", ""))) for order in orders if order.slowed > 1} == {
        member
    }
    every = sorted({order.round for order in orders})
    return [each for each in every if each < slow[0]], slow, [each for each in every if each > slow[-1]]


def test_a_slow_learner_gets_less_by_jump_reset_and_changes_no_parameter(make_bench, tmp_path):
    """A quarter of the speed in four rounds: a fifth or so of the steps of one, half of it before and afterwards.

    Of one, since a busy machine makes the other member slow in some.
    """
    module, data, spec = task(tmp_path / "files", loss=each_takes_long, n_steps=60)
    bench = make_bench(n_slots=2)
    run = bench.start([spec.to_plain()])
    run.round(2)
    slow = run.of("LeaseReceived")[-1]["slots"][1]
    bench.link.slow_down("r1", "fit", slow, 4.0, 4)
    ended = run.end()["fit"]
    assert ended["state"] == "done", ended["reason"]
    assert_plain(run, module, data, 60, 1e-9)
    journal = check_laws(run.out)
    stream = journal.streams["task-fit-a1"]
    orders, answers = stream.of(batching.ComputeShare), stream.of(batching.ShareComputed)
    before, slowed, after = slowed_rounds(orders, slow)
    assert len(slowed) == 4

    def part(of_round):
        """Return the part of a whole step that the member had, in the middle of a round's steps."""
        mine = [order.n for order in orders if order.round == of_round and order.slot == slow]
        return median(mine) / 128

    assert max(map(part, before)) > 0.4
    assert min(map(part, slowed[1:])) < 0.33
    assert max(map(part, after)) > 0.4
    took = [each for each in answers if each.round in slowed and each.slot == slow]
    assert min(each.compute_s / each.n_done for each in took) >= 4 * 0.0005, "by the member's own clock"
    assert fold_of(journal).origin == "emulated"


@pytest.mark.slow
def test_a_slow_collector_has_fewer_steps_by_proportional(make_bench):
    """A fifth of the speed in ten rounds: at most half of the steps of the other in one of them; then alike again."""
    bench = make_bench(n_slots=1)
    task = bench.spec("cart", steps=64 * 60, n_envs=2, n_steps=32, batch_size=32, n_epochs=1)
    run = bench.start([task], planners={"collect": "proportional"})
    run.round(8)
    bench.link.slow_down("r1", "cart", "1", 5.0, 10)
    ended = run.end()["cart"]
    assert ended["state"] == "done", ended["reason"]
    stream = check_laws(run.out).streams["task-cart-a1"]
    _, slowed, after = slowed_rounds(stream.of(warmup.WakeCollector), "1")
    assert len(slowed) == 10
    n_steps = {plan.round: plan.n_steps for plan in stream.of(batching.BatchPlanned)}
    ratios = {number: mine / other for number, (other, mine) in n_steps.items()}
    assert min(ratios[number] for number in slowed) <= 0.5
    assert max(ratios[number] for number in after) >= 0.7
    assert not stream.of(words.TaskFailed)
