"""The learner of supervised work: the steps of a plain loop, undone whole, saved exactly, faults in one line."""

import json

import pytest
import torch
from safetensors.torch import load

from drlnb.records.errors import NonFinite
from drlnb.records.spec import FitWork
from drlnb.rl.networks.same_bits import one_thread
from drlnb.runtime.children.fit import FitLearner
from tests.runtime.fit import programs


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def learner(program, **more):
    name = f"tests.runtime.fit.programs:{program}"
    return FitLearner(FitWork(name="a", program=name, total_timesteps=100, **more))


def made(learner, *ends):
    """Make rounds up to these steps; return the parameters."""
    for number, end in enumerate(ends, 1):
        learner.begin(number, end)
        learner.finish()
    return load(learner.published().tobytes())


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("program", ["regression", "doubles", "named", "alone", "noisy"])
def test_rounds_are_the_plain_loop(program):
    """Whatever the rounds, and with random numbers and a default dtype of the program's own."""
    dtype, numbers = torch.get_default_dtype(), torch.get_rng_state()
    ours = made(learner(program, seed=7), 3, 10, 12)
    assert torch.get_default_dtype() == dtype, "others on the slot keep theirs"
    assert torch.equal(torch.get_rng_state(), numbers)
    try:
        assert_same(ours, programs.plain_loop(getattr(programs, program), 12, seed=7))
    finally:
        torch.set_default_dtype(dtype)


@pytest.mark.parametrize("program", ["regression", "doubles", "named", "alone", "noisy"])
def test_another_process_goes_on_from_what_was_saved(program):
    """Through JSON and bytes: buffers, moments and random numbers go on where they were."""
    first = learner(program)
    made(first, 5)
    facts, buffer = first.state()
    second = learner(program)
    made(second, 9)  # it was elsewhere
    second.restore(json.loads(json.dumps(facts)), buffer)
    assert_same(made(second, 12), made(first, 12))


def test_what_is_revoked_is_undone():
    """A round whose lease is taken away in its midst may be made again, with the same bits."""
    undisturbed, revoked = learner("regression"), learner("regression")

    def revoke(done, total):
        assert total == 6
        if done == 4:
            raise KeyboardInterrupt

    revoked.begin(1, 6)
    with pytest.raises(KeyboardInterrupt):
        revoked.finish(revoke)
    assert revoked.n_steps == 0
    assert_same(made(revoked, 6), made(undisturbed, 6))


def test_the_loss_of_a_round_is_the_mean_of_its_steps():
    one = learner("regression")
    losses = []
    for end in range(1, 5):
        one.begin(end, end)
        losses.append(one.finish()["train/loss"])
    four = learner("regression")
    four.begin(1, 4)
    mean = pytest.approx(sum(losses) / 4)
    assert four.finish() == {"train/loss": mean, "train/n_updates": 4, "train/learning_rate": 0.01}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("leaves", r"^batches\(0\) raised SystemExit: 3$"),
        ("gives_one", r"^step 0: a batch must be \(inputs, targets\), got tensor\("),
        (
            "loses_by_row",
            r"^step 0 raised TypeError: loss must return a tensor without axes, such as a mean, got shape \(64,\)$",
        ),
    ],
)
def test_a_fault_of_the_program_is_one_line(program, said):
    faulty = learner(program)
    faulty.begin(1, 3)
    before = faulty.published()
    with pytest.raises(RuntimeError, match=said) as caught:
        faulty.finish()
    assert "\n" not in str(caught.value)
    assert (faulty.published() == before).all()


def test_a_loss_that_is_not_finite_changes_nothing():
    diverging = learner("diverges")
    before = made(diverging, 5)
    diverging.begin(2, 10)
    with pytest.raises(NonFinite, match="loss is inf at step 5; update refused"):
        diverging.finish()
    assert_same(load(diverging.published().tobytes()), before)


def test_what_is_no_program_is_refused():
    with pytest.raises(
        RuntimeError, match=r"program\(\) must return \(module, optimizer, loss, batches\), got \(Linear"
    ):
        learner("gives_three")
    with pytest.raises(
        ValueError, match=r"tests\.runtime\.fit\.programs:regresion cannot be imported here: AttributeError"
    ):
        learner("regresion")


def test_tied_weights_are_saved_and_go_on():
    """A parameter that two layers share is written twice, and is one again when it is read."""
    first, second = learner("tied"), learner("tied")
    made(first, 4)
    second.restore(*first.state())
    assert_same(made(second, 8), made(first, 8))
    assert_same(load(first.published().tobytes()), programs.plain_loop(programs.tied, 8))
