"""The placement patent's agent, statement by statement (3-1 to 3-13)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from drlnb.learned.placement import Patent
from drlnb.learned.placement.network import Policy, save
from drlnb.learned.placement.patent import Ring, log_policy, new_networks, train_patent
from drlnb.learned.placement.planner import Question, state_of, steps_of_patent
from drlnb.learned.placement.playing import Played, Sample, makespan_s, random_s, simulated
from drlnb.learned.placement.train import weights_of
from drlnb.planning.placement import GANGS, PLACEMENT, JobView, Pick, PlacementView
from drlnb.planning.placement.planner import GangPlacement
from drlnb.planning.placement.rules import random_rule
from drlnb.planning.registry import PlannerFailed
from tests.batches import Count, batch_of, endless, view_of


def test_the_networks_have_the_parameters_of_the_patents_layers():
    """Worked by hand for 64 slots: 66-256-196-196-128-64, and -1."""
    policy, value = new_networks(64)
    assert sum(each.numel() for each in policy.parameters()) == 139_608
    assert sum(each.numel() for each in value.parameters()) == 131_481
    assert [each.out_features for each in policy if hasattr(each, "out_features")] == [256, 196, 196, 128, 64]


def _policy(n_slots, seed=0):
    torch.manual_seed(seed)
    return new_networks(n_slots)[0]


def test_numpy_scores_are_those_of_torch():
    """To 1e-6, and minus infinity on the same slots."""
    policy = _policy(16)
    states = np.hstack([np.full((9, 1), 3.0), np.full((9, 1), 0.9), np.random.default_rng(0).integers(0, 2, (9, 16))])
    states[:, 2] = 0.0
    theirs = log_policy(policy, torch.tensor(states, dtype=torch.float32)).detach().numpy()
    logits = Policy(weights_of(policy)).logits("patent", [state[None] for state in states])
    mine = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert (np.isneginf(mine) == (states[:, 2:] > 0)).all()
    np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_the_state_by_hand():
    """Two more slots for 99 s; slots 1 (busy), 2 (failed) and 0 (chosen just now) are taken."""
    view = view_of([0.1] * 4, state=("free", "busy", "failed", "free"), jobs=[(3, 99.0)])
    assert state_of(view, 2, [0]).tolist() == [[2.0, np.log(100.0) / 12, 1.0, 1.0, 1.0, 0.0]]


def test_the_networks_are_asked_again_for_each_slot():
    """What is wanted counts down, and a slot that was chosen is taken at once."""
    asked = steps_of_patent(view_of([0.1] * 4, jobs=[(3, 99.0), (1, 60.0)]))
    states = [next(asked).rows[0], asked.send(2).rows[0], asked.send(0).rows[0]]
    assert [state[0] for state in states] == [3, 2, 1]
    assert [state[2:].tolist() for state in states] == [[0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0]]
    with pytest.raises(StopIteration) as ended:
        asked.send(3)
    assert ended.value.value == Pick("j0", (2, 0, 3))  # the first job of the window


def _fixed(logits):
    """Return a policy network that scores slots so, whatever it sees."""
    policy = _policy(len(logits))
    with torch.no_grad():
        policy[-1].weight.zero_()
        policy[-1].bias.copy_(torch.tensor(logits))
    return policy


def test_use_takes_the_best_free_slot_of_those_that_remain():
    """Slot 1 would be best but is busy; then 3, 0."""
    policy = Policy(weights_of(_fixed([1.0, 5.0, 0.0, 2.0])))
    view = view_of([0.1] * 4, state=("free", "busy", "free", "free"), jobs=[(2, 60.0)])
    assert Patent(network=policy).plan(view) == Pick("j0", (3, 0))
    assert Patent(network=policy).plan(view_of([0.1] * 4, jobs=[])) is None


def test_a_plan_has_the_probability_of_each_slot_that_was_free():
    """When it was asked last: slot 3 among 0, 2 and 3, then slot 0 among 0 and 2; busy ones have none."""
    policy = Policy(weights_of(_fixed(np.log([3.0, 90.0, 1.0, 4.0]).tolist())))
    view = view_of([0.1] * 4, state=("free", "busy", "free", "free"), jobs=[(2, 60.0)])
    chances = dict(Patent(network=policy).plan(view).chances)
    assert chances == {0: pytest.approx(3 / 4), 2: pytest.approx(1 / 4), 3: pytest.approx(4 / 8)}


def test_logits_are_masked_before_the_softmax():
    """Both halves: zeroing afterwards chooses the same slot, and is another gradient.

    Of logits 0, 1, 2 with the last one taken, p = softmax(0, 1), and the gradient of log p(1) is 1 - p(1) there, -p(0)
    at 0 and 0 at the taken slot; after a softmax over all it would be -p(2) there, which is not 0.
    """
    logits = torch.tensor([[0.0, 1.0, 2.0]], requires_grad=True)
    states = torch.tensor([[1.0, 1.0, 0.0, 0.0, 1.0]])
    log_p = log_policy(lambda _: logits, states)
    p = torch.softmax(torch.tensor([0.0, 1.0]), 0)
    np.testing.assert_allclose(log_p.detach().exp()[0], [*p, 0.0], atol=1e-7)
    log_p[0, 1].backward()
    np.testing.assert_allclose(logits.grad[0], [-p[0], 1 - p[1], 0.0], atol=1e-6)
    zeroed = torch.softmax(logits.detach(), 1) * torch.tensor([1.0, 1.0, 0.0])
    assert zeroed.argmax() == log_p.argmax()
    assert zeroed[0, 1] < p[1]


def test_the_reference_is_the_best_of_eight_random_placements_on_the_same_faults():
    """Makespans by slot: the least of eight rules of seeds 0..7, played one by one."""
    batch = batch_of(view_of([0.1] * 64), lambda pick: 1000.0 - pick.slots[0])
    ends = [makespan_s(batch, random_rule(seed)) for seed in range(8)]
    assert len(set(ends)) > 2
    assert random_s(batch) == min(ends)


def _sample(k):
    return Sample(Question("patent", np.full((1, 5), float(k))), k, -0.5 * k)


def test_the_ring_keeps_the_newest():
    """Of seven samples in a ring of four the last four, with their log-probabilities and rewards."""
    ring = Ring(4, 3)
    ring.add([_sample(k) for k in range(5)], reward=1.0)
    ring.add([_sample(k) for k in range(5, 7)], reward=2.0)
    rows = np.sort(ring.batch(9, np.random.default_rng(0)), order="slot")
    assert rows["slot"].tolist() == [3, 4, 5, 6]
    assert rows["reward"].tolist() == [1, 1, 2, 2]
    assert rows["log_p"].tolist() == [-1.5, -2.0, -2.5, -3.0]
    assert rows["state"][:, 0].tolist() == [3, 4, 5, 6]


def test_a_batch_is_as_many_as_an_interval_gave():
    """Different rows each, of all that are kept: old ones, too."""
    ring, rng = Ring(100, 3), np.random.default_rng(0)
    ring.add([_sample(k) for k in range(60)], reward=1.0)
    drawn = [ring.batch(20, rng)["slot"].tolist() for _ in range(2)]
    assert [len(set(each)) for each in drawn] == [20, 20]
    assert drawn[0] != drawn[1]
    assert sorted(ring.batch(100, rng)["slot"].tolist()) == list(range(60))
    assert len(ring.batch(80, rng)) == 60


def _best_is(slot):
    """Return a batch that is over in half the time on one slot."""
    return batch_of(view_of([0.1] * 4), lambda pick: 100.0 if pick.slots == (slot,) else 200.0)


def _playing(slot):
    return simulated(endless(_best_is(slot)), steps_of_patent)


@pytest.mark.parametrize("n", [4, pytest.param(150, marks=pytest.mark.slow)])
def test_the_slot_that_ends_soonest_comes_to_be_chosen(n):
    """Beside a constant: best of eight random placements is the best slot itself, and leaves no reward above 0."""
    before, after = (
        train_patent(simulated(endless(_best_is(2)), steps_of_patent, lambda batch: 150.0), 4, 0, over)
        for over in (lambda: 1.0, Count(n))
    )
    state = state_of(view_of([0.1] * 4), 1, [])
    p = [np.exp(Policy(each.weights).logits("patent", [state])[0]) for each in (before, after)]
    shares = [each[2] / each.sum() for each in p]
    assert shares[1] > shares[0]
    assert n < 100 or shares[1] > 0.9
    assert len(after.rewards) == n
    assert all(-1 / 3 <= each <= 1 / 3 for each in after.rewards)


def test_a_training_without_a_ring_is_another_one():
    """It is not accepted and ignored; the same one gives the same weights."""
    how = {"n_kept": 0}
    once, again, plain = (train_patent(_playing(1), 4, 3, Count(2), **each).weights for each in (how, how, {}))
    assert all((once[name] == again[name]).all() for name in once)
    assert any((once[name] != plain[name]).any() for name in once)


def test_it_is_of_one_number_of_slots_and_says_so(tmp_path):
    """Untrained, or of another number: one line, as the planner's failure."""
    view = view_of([0.1] * 4)
    with pytest.raises(ValueError, match=r"gangs planner patent: it is of one cluster: drlnb.placement.train"):
        GANGS.build("patent")
    save(tmp_path / "p.npz", "patent", weights_of(_policy(3)))
    planner = GANGS.build(f"patent:weights={tmp_path / 'p.npz'}")
    with pytest.raises(PlannerFailed, match="it was trained for 3 slots, there are 4: train it for these"):
        GANGS.ask(planner, view)
    assert GANGS.ask(planner, view_of([0.1] * 3)).job == "j0"
    with pytest.raises(ValueError, match="it is of planner patent"):
        GANGS.build(f"learned:weights={tmp_path / 'p.npz'}")


def test_it_knows_slots_by_their_numbers():
    """The same rates on other slots are nothing to it: its state has neither rates nor nodes."""
    planner = Patent(network=Policy(weights_of(_fixed([0.0, 3.0, 2.0, 1.0]))))
    assert planner.plan(view_of([0.1, 9.0, 0.1, 0.1])) == planner.plan(view_of([0.1, 0.1, 9.0, 0.1]))


def test_slots_that_it_knows_by_name_may_be_missing():
    """Of three slots a, b, c, scored 3, 2, 1: a has gone, d has come, which it does not know; it holds c."""
    planner = Patent(network=Policy(weights_of(_fixed([3.0, 2.0, 1.0]))), slots=("a", "b", "c"))
    view = view_of([0.1] * 3, jobs=[(1, 60.0)], names=("b", "c", "d"))
    assert planner.plan(view) == Pick("j0", (0,))
    chances = dict(planner.plan(view).chances)
    assert chances == {0: pytest.approx(1 / (1 + np.exp(-1))), 1: pytest.approx(1 / (1 + np.exp(1)))}
    kept = replace(view, window=(JobView(job="j", n_slots=2, work_s=60.0, kept=(1,)),), state=("free", "busy", "free"))
    assert planner.plan(kept) == Pick("j", (1, 0))
    assert planner.plan(replace(view, window=())) is None


def test_slots_that_it_does_not_know_are_taken_where_its_own_are_too_few():
    """It knows a and b: of c, b, d a gang of two gets b, which it knows, then c; one that holds d keeps it."""
    planner = Patent(network=Policy(weights_of(_fixed([3.0, 2.0]))), slots=("a", "b"))
    view = view_of([0.1] * 3, jobs=[(2, 60.0)], names=("c", "b", "d"))
    assert GANGS.ask(planner, view) == Pick("j0", (1, 0))
    busy = replace(view, state=("free", "busy", "free"))
    assert GANGS.ask(planner, busy) == Pick("j0", (0, 2))
    holds = replace(view, window=(JobView(job="j", n_slots=3, work_s=60.0, kept=(2,)),), state=("free", "free", "busy"))
    assert GANGS.ask(planner, holds) == Pick("j", (2, 1, 0))
    others = "gangs planner patent raised ConfigError: it was trained for slots a, b: none of them is there, but c, d"
    with pytest.raises(PlannerFailed, match=others):
        GANGS.ask(planner, view_of([0.1] * 2, names=("c", "d")))


def test_files_say_which_slots_they_are_of(tmp_path):
    """By name where a view has names, by number where it has none; a number of names that does not fit is refused."""
    weights = weights_of(_fixed([3.0, 2.0, 1.0]))
    save(tmp_path / "p.npz", "patent", weights, ("a", "b", "c"))
    planner = GANGS.build(f"patent:weights={tmp_path / 'p.npz'}")
    assert planner.plan(view_of([0.1] * 3, names=("c", "b", "a"))) == Pick("j0", (2,))
    assert planner.plan(view_of([0.1] * 3)) == Pick("j0", (0,))
    save(tmp_path / "q.npz", "patent", weights, ("a", "b"))
    with pytest.raises(ValueError, match="it names 2 slots, its layers are of 3"):
        GANGS.build(f"patent:weights={tmp_path / 'q.npz'}")


def test_training_goes_on_with_other_weights_and_passes_over_what_gave_nothing():
    """An interval without a sample changes nothing, and has no reward; what it goes on with, it has at first."""
    begin = Policy(weights_of(_policy(4, seed=7)))
    nothing = train_patent(lambda answers: [], 4, 0, Count(3), begin=begin)
    assert nothing.rewards == []
    assert all((nothing.weights[name] == value).all() for name, value in begin.weights.items())
    one = Played(1.0, 2.0, [Sample(Question("patent", np.array([[1.0, 0.3, 0, 0, 0, 0]])), 2, -1.4)])
    once = train_patent(lambda answers: [one], 4, 0, Count(3), begin=begin)
    assert once.rewards == [0.5] * 3
    assert any((once.weights[name] != value).any() for name, value in begin.weights.items())


def test_a_task_of_a_fleet_is_placed_by_it():
    """Under its name among planners of placement, as `learned` is; gangs wait for nobody there."""
    policy = Policy(weights_of(_fixed([3.0, 2.0, 1.0])))
    planner = GangPlacement("patent", Patent(network=policy, slots=("n0/cpu0", "n0/cpu1", "n1/cpu0")))
    view = PlacementView(
        homes={"n0/cpu1": 0, "n1/cpu0": 0}, free_collectors={"n0": 4}, node="n0", n_collectors=1, n_learners=1
    )
    assert planner.plan(view).slots == ("n0/cpu1",)
    p = 1 / (1 + np.exp(-1))
    weighed = [(each.slot, each.rate_hz, each.chance) for each in planner.plan(view).weighed]
    assert weighed == [("n0/cpu1", 0.0, pytest.approx(p)), ("n1/cpu0", 0.0, pytest.approx(1 - p))]
    assert PLACEMENT.build("learned").plan(replace(view, n_learners=2)).slots
    assert {"learned", "patent"} <= set(PLACEMENT.names)
