"""A slot that is given away in the midst of a round, and a setting that was changed before that round."""

import pytest

from drlnb.records.ids import Fence
from drlnb.runtime.children.device import Device
from drlnb.runtime.children.executor import ExecutorChild
from tests.runtime.learning import FENCE, Channel, LearningChild

ONE_PASS = {"n_epochs": 1, "batch_size": 64, "n_steps": 16}


@pytest.fixture(params=["ppo", "gpf"])
def streaming(request):
    """Return an executor child that has computed a round of a task that computes gradients at arrival."""
    child = LearningChild(algo=request.param, **ONE_PASS)
    child.round()
    assert child.learner.compute == "stream"
    yield child
    for collector in child.collectors:
        collector.close()


def finished(child, **header):
    answer, made = child.ask("finish", round=2, **header)
    assert answer["op"] == "made"
    return made


@pytest.mark.parametrize("n_epochs", [1, 4])
def test_more_passes_may_be_asked_for_while_the_slot_is_shared(streaming, n_epochs):
    """The first half of the round is kept, the slot goes; the second half is made elsewhere, with the same bits.

    Once ``KeyError: 0``: with four passes no gradient is computed at arrival, and what was kept asked for it.
    """
    meta, state = streaming.learner.state()
    frames = streaming.frames(2)
    for header, _ in frames:
        header |= {"settings": {"n_epochs": n_epochs}, "state": meta, "spec": streaming.spec.to_plain()}
    (first, data), (second, more) = frames
    answer, part = streaming.ask("stage", data, **first, keep=True)
    assert answer["op"] == "staged"

    streaming.child = ExecutorChild(Channel(), Device("cpu"))
    lease = Fence(FENCE.epoch, FENCE.token + 1)
    kept = {**first, "n_state": len(state), "keys": ["2/0/5"], "sizes": [len(part)], "fence": lease}
    assert streaming.ask("restore", state.tobytes() + part, **kept)[0]["op"] == "restored"
    assert streaming.ask("stage", more, **second, fence=lease)[0]["op"] == "staged"
    shared = finished(streaming, fence=lease)

    streaming.child = ExecutorChild(Channel(), Device("cpu"))
    assert streaming.ask("stage", state.tobytes() + data, **first | {"n_state": len(state)})[0]["op"] == "staged"
    assert streaming.ask("stage", more, **second)[0]["op"] == "staged"
    assert finished(streaming) == shared


def test_a_gradient_that_is_fetched_later_is_the_one_that_comes_with_the_answer(streaming):
    """Byte by byte; of a batch that is not staged there, or under another lease, none is made up."""
    (first, data), (second, _) = streaming.frames(2)
    _, at_once = streaming.ask("stage", data, **first, keep=True)
    answer, later = streaming.ask("keep", collector=first["collector"], round=2)
    assert (answer["op"], later) == ("kept", at_once)
    for asked in ({"collector": second["collector"], "round": 2}, {"collector": first["collector"], "round": 3}):
        refused, _ = streaming.ask("keep", **asked)
        assert refused["reason"] == "what is to be kept is not staged under this fence"


def test_two_slots_compute_one_round_with_the_bits_of_one(streaming):
    """The lead has its own half and gets that of the other slot, in whichever order; it finishes nothing less."""
    meta, state = streaming.learner.state()
    frames = streaming.frames(2)
    more = {"state": meta, "spec": streaming.spec.to_plain()}
    at_first = {"n_state": len(state), **more}
    (first, data), (second, other_data) = frames

    def fresh():
        streaming.child = ExecutorChild(Channel(), Device("cpu"))

    fresh()
    assert streaming.ask("stage", state.tobytes() + data, **first | at_first)[0]["op"] == "staged"
    assert streaming.ask("stage", other_data, **second)[0]["op"] == "staged"
    alone = finished(streaming)
    for mine, other in ((frames[0], frames[1]), (frames[1], frames[0])):
        fresh()  # the other slot
        answer, part = streaming.ask("stage", state.tobytes() + other[1], **other[0] | at_first, keep=True)
        assert answer["op"] == "staged"
        fresh()  # the lead
        assert streaming.ask("stage", state.tobytes() + mine[1], **mine[0] | at_first)[0]["op"] == "staged"
        refused, _ = streaming.ask("finish", round=2)
        (has,) = {0, 1} - {other[0]["collector"]}
        assert refused["reason"] == f"what is staged under this fence is of collectors [{has}], not [0, 1]"
        given = {**other[0], "keys": [f"2/{other[0]['collector']}/5"], "sizes": [len(part)]}
        assert streaming.ask("restore", part, **given)[0]["op"] == "restored"
        assert finished(streaming) == alone
