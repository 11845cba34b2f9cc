"""The network of planner `learned`: numpy beside torch, imitation, improvement, and its files."""

import io
import json
import pickle
from dataclasses import replace
from importlib import resources
from itertools import cycle

import numpy as np
import pytest
import torch

from drlnb.learned.placement import Learned
from drlnb.learned.placement.network import VERSION, Network, load, log_softmax, save, shipped
from drlnb.learned.placement.planner import Question, steps
from drlnb.learned.placement.playing import Sample, makespan_s, play_together, questions, sampled
from drlnb.learned.placement.train import Taken, clipped_loss, imitation_loss, new_network, train, weights_of
from drlnb.planning.placement import GANGS, Pick
from drlnb.records.errors import ConfigError
from tests.batches import Count, Ended, batch_of, endless, view_of

PARTS = Network.parts


def _groups(part, sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, PARTS[part])) for n in sizes]


def test_numpy_scores_are_those_of_torch():
    """To 1e-6, on groups of several sizes at once, and each group as if it were alone."""
    torch.manual_seed(0)
    network = new_network()
    mine = Network(weights_of(network))
    for part in PARTS:
        groups = _groups(part, (1, 7, 3, 64))
        theirs = network[part](groups).detach().numpy()
        logits = mine.logits(part, groups)
        shifted = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        assert (np.isneginf(shifted) == np.isneginf(theirs)).all()
        np.testing.assert_allclose(shifted, theirs, atol=1e-6)
        for group, row in zip(groups, logits, strict=True):
            np.testing.assert_allclose(mine.logits(part, [group])[0], row[: len(group)], atol=1e-12)


def test_some_25_thousand_parameters():
    """Any number of slots has the same."""
    assert 20_000 < sum(each.numel() for each in new_network().parameters()) < 30_000


def test_the_imitation_loss_by_hand():
    """Rows of probability .5, .25, .25, of which rules choose the last two alike: -log(.25); of one row: -log 1."""
    rows = np.zeros((3, PARTS["slots"]))
    rows[1:, 0] = 1.0
    log_p = torch.log(torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]))
    samples = [Sample(Question("slots", rows), 1, 0.0), Sample(Question("slots", rows[1:2]), 0, 0.0)]
    assert imitation_loss(log_p, samples).item() == pytest.approx(-np.log(0.25) / 2)


def test_the_clipped_loss_by_hand():
    """Ratio 1.5 at advantage 1 counts 1.2; ratio .5 at advantage -1 counts -.8; entropies log 2 and 0 at weight .1."""
    log_p = torch.log(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    before = torch.log(torch.tensor([0.5 / 1.5, 1.0 / 0.5]))
    loss = clipped_loss(log_p, Taken(torch.tensor([0, 0]), before, torch.tensor([1.0, -1.0])), 0.1)
    assert loss.item() == pytest.approx(-(1.2 - 0.8) / 2 - 0.1 * np.log(2) / 2)


def _best(network):
    return lambda part, groups: (network.logits(part, groups).argmax(axis=1).tolist(), [0.0] * len(groups))


def _drawn(rng):
    jobs = [(int(rng.integers(1, 5)), float(rng.uniform(60, 80_000))) for _ in range(4)]
    return view_of(rng.uniform(0.01, 1, 8).tolist(), nodes=(0, 0, 0, 0, 1, 1, 1, 1), jobs=jobs)


def _rules_plan(view):
    """Return the largest job of the window on the slots of `ect`."""
    largest = max(view.window, key=lambda job: job.n_slots * job.work_s)
    return GANGS.build("ect").plan(replace(view, window=(largest,)))


def _imitated(rng, n_rounds):
    """Return a network that has imitated rules for some rounds."""
    progress = Count(n_rounds)
    batches = (batch_of(_drawn(rng), lambda pick: 1.0) for _ in cycle([0]))
    return Network(train(batches, 0, lambda: float(progress() >= 1.0)).weights)


def _p(network, question):
    """Return the probability of each row."""
    return np.exp(log_softmax(network.logits(question.part, [question.rows]))[0])


def test_imitation_comes_closer_to_the_rules():
    """A few rounds bring up how likely the largest job is."""
    rng = np.random.default_rng(0)
    question = next(steps(_drawn(rng)))
    before, after = (_p(_imitated(rng, n), question)[question.rows[:, 0].argmax()] for n in (1, 5))
    assert after > before


@pytest.mark.slow
def test_imitation_alone_gives_the_rules():
    """The largest job first, and the slots of `ect`, on views that it was not trained on."""
    rng = np.random.default_rng(0)
    planner, views = Learned(network=_imitated(rng, 300)), [_drawn(rng) for _ in range(20)]
    pairs = [(planner.plan(view), _rules_plan(view)) for view in views]
    assert sum(mine.job == theirs.job and set(mine.slots) == set(theirs.slots) for mine, theirs in pairs) >= 18


def _worst():
    """Return a batch that is over soonest on the slot that rules would choose last."""
    view = view_of([0.01, 0.1, 1.0, 10.0])
    return batch_of(view, lambda pick: 100.0 if pick.slots == (3,) else 200.0)


@pytest.mark.parametrize("n", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_what_plays_well_comes_to_be_chosen(n):
    """The worst slot is the best here: a few rounds bring its probability up, some more make it the plan."""
    progress, view = Count(n), view_of([0.01, 0.1, 1.0, 10.0])
    before, after = (train(endless(_worst()), 1, over) for over in (lambda: 1.0, lambda: 0.2 + progress()))
    question = next(steps(view))
    p = [_p(Network(each.weights), question)[3] for each in (before, after)]
    assert p[1] > p[0]
    assert n < 40 or Learned(network=Network(after.weights)).plan(view).slots == (3,)
    assert len(after.rewards) <= n
    assert max(after.rewards) <= np.log(2)  # of `ect`: 200 s


def test_probabilities_of_a_plan_are_those_of_its_questions():
    """The first slot's among four, the second one's and those of the rest among three."""
    network = shipped()
    asking = steps(view := view_of([0.01, 0.1, 1.0, 10.0], jobs=[(2, 600.0)]))
    first = _p(network, question := next(asking))
    took = int(first.argmax())
    slot = int(question.slots[took])
    second = dict(zip(map(int, (question := asking.send(took)).slots), _p(network, question), strict=True))
    assert sorted(second) == sorted({0, 1, 2, 3} - {slot})
    pick = Learned().plan(view)
    assert pick.slots[0] == slot
    assert dict(pick.chances) == pytest.approx({slot: first[took], **second})
    assert Learned().plan(view_of([0.01, 0.1], jobs=[(2, 600.0)])).chances == ()  # nothing to choose


def test_a_seed_is_a_network():
    """The same weights again, other ones for another seed; torch's own generator and threads stay as they are."""
    state = torch.random.get_rng_state()
    torch.set_num_threads(2)
    first, again, other = (train(endless(_worst()), seed, Count(2)).weights for seed in (1, 1, 2))
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.get_num_threads() == 2


def test_many_games_at_once_are_those_games_alone():
    """Each has its own questions and end, whatever is asked beside it."""
    torch.manual_seed(0)
    network = Network(weights_of(new_network()))
    views = [
        view_of(np.linspace(0.1, 1, n).tolist(), jobs=[(k, 600.0), (1, 60.0)]) for n, k in ((4, 2), (9, 5), (2, 1))
    ]
    batches = [batch_of(view, lambda pick: 1.0 + sum(pick.slots)) for view in views]
    decide = Learned(network=network)

    def games():
        return [questions(batch, steps) for batch in batches]

    together = [outcome.makespan_s for outcome, _ in play_together(games(), _best(network))]
    assert together == [makespan_s(batch, decide) for batch in batches]
    alone = [play_together([each], _best(network))[0] for each in games()]
    assert together == [outcome.makespan_s for outcome, _ in alone]


def test_answers_are_drawn_with_the_probabilities_that_are_noted():
    """A thousand draws of three rows: shares within four standard errors."""
    torch.manual_seed(1)
    network = Network(weights_of(new_network()))
    groups = _groups("slots", [3]) * 1000
    chosen, log_p = sampled(network, np.random.default_rng(0), "slots")("slots", groups)
    p = np.exp(network.logits("slots", groups[:1])[0])
    p /= p.sum()
    np.testing.assert_allclose(np.exp(log_p), p[chosen])
    shares = np.bincount(chosen, minlength=3) / 1000
    assert (np.abs(shares - p) < 4 * np.sqrt(p * (1 - p) / 1000)).all()


# ---------------------------------------------------------------------- files
def test_files_give_the_network_back(tmp_path):
    """Halves of the bits: to a thousandth of each weight."""
    weights = weights_of(new_network())
    save(tmp_path / "a.npz", "learned", weights)
    groups, mine = _groups("slots", (5, 9)), Network(weights)
    np.testing.assert_allclose(
        load(tmp_path / "a.npz", Network).logits("slots", groups), mine.logits("slots", groups), atol=5e-3
    )
    assert GANGS.build(f"learned:weights={tmp_path / 'a.npz'}").plan(view_of([0.1, 0.2])) in {
        Pick("j0", (0,)),
        Pick("j0", (1,)),
    }


class _Bomb:
    def __reduce__(self):
        return pytest.fail, ("code of a file of weights was run",)


def _npz(planner="learned", version=VERSION, **arrays):
    """Return what writes such arrays."""
    return lambda file: np.savez(file, planner=np.array(planner), version=np.array(version), **arrays)


def _changed(change):
    """Return what writes weights that were changed."""
    return lambda file: save(file, "learned", {key: change(each) for key, each in weights_of(new_network()).items()})


def _npy():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def _cut(file):
    _changed(lambda each: each)(file)
    file.write_bytes(file.read_bytes()[:2000])


#: What is in the file -> what writes it, and words of its refusal.
_WRONG = {
    "nothing": (lambda file: None, "No such file"),
    "folder": (lambda file: file.mkdir(), "Is a directory"),
    "empty": (lambda file: file.write_bytes(b""), "must hold weights"),
    "pickle": (lambda file: file.write_bytes(pickle.dumps(_Bomb())), "pickled objects, which are not read"),
    "objects": (_npz(**{"jobs.own.weight": np.array([_Bomb()])}), "pickled objects, which are not read"),
    "text": (lambda file: file.write_text("weights"), "must hold weights"),
    "npy": (lambda file: file.write_bytes(_npy()), "must hold weights"),
    "cut": (_cut, "must hold weights"),
    "other": (lambda file: np.savez(file, a=np.zeros(3)), "must hold weights"),
    "version": (_npz(version=VERSION + 1), f"it has version {VERSION + 1}, this is version {VERSION}"),
    "planner": (_npz(planner="patent"), "it is of planner patent"),
    "names": (_npz(own=np.zeros(3)), "jobs.own.weight"),
    "shapes": (_changed(lambda each: each[..., :3]), "must hold weights"),
    "nan": (_changed(lambda each: each * np.nan), "not finite"),
}


@pytest.mark.parametrize(("write", "words"), _WRONG.values(), ids=_WRONG)
def test_other_files_are_refused_in_one_line(tmp_path, write, words):
    """Whatever is in them, nothing of it is run, and the file is named."""
    file = tmp_path / "w.npz"
    write(file)
    with pytest.raises(ValueError, match=words) as refused:
        GANGS.build(f"learned:weights={file}")
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_window_is_there_or_not():
    """The trait tells who asks how many jobs to show; another number is refused."""
    network = Network(weights_of(new_network()))
    assert [GANGS.trait(Learned(window=k, network=network), "window") for k in (0, 1)] == [False, True]
    with pytest.raises(ConfigError, match="window must be 0 or 1, got 2"):
        Learned(window=2, network=network)
    assert Learned(window=0, network=network).plan(view_of([0.1], jobs=[])) is None


def test_an_outcome_is_any_object_with_a_makespan():
    """What runs return is the caller's."""
    assert makespan_s(batch_of(view_of([0.1]), lambda pick: 7), GANGS.build("ect")) == Ended(7.0).makespan_s


def test_the_shipped_network_is_read_once_and_plans():
    """It travels with the package, with how it was made."""
    file = resources.files("drlnb.learned.placement") / "weights"
    made = json.loads((file / "learned.json").read_text(encoding="utf-8"))
    assert made["made_by"].startswith("python -m benchmarks.placement.weights")
    assert len((file / "learned.npz").read_bytes()) < 100_000
    assert shipped() is shipped()
    view = view_of([0.1] * 6 + [9.0] * 2, nodes=(0, 0, 0, 0, 1, 1, 1, 1), jobs=[(2, 86_400.0), (1, 60.0)])
    assert GANGS.build("learned").plan(view).job in {"j0", "j1"}
    assert not set(GANGS.build("learned:window=0").plan(view).slots) & {6, 7}
