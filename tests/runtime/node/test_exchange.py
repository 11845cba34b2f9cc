"""What a node keeps for the members of a lease: what is needed, for as long as it is needed, and no byte longer."""

import asyncio
import gc

import pytest

from drlnb.records.ids import Fence
from drlnb.runtime.ipc.shared_memory import LEAST_BYTES, Segments
from drlnb.runtime.node.exchange import Exchange
from tests.runtime.played_agent import played_link

LARGE = bytes(LEAST_BYTES)


class Node:
    """An exchange, and how its link reaches others."""

    def __init__(self, others, name):
        self.segments = Segments()
        self.exchange = Exchange(played_link(address=name, call=self.call), self.segments)
        self.others = others
        others[name] = self

    async def call(self, address, op, /, *, timeout_s, payload=b"", **message):
        assert op == "drlnb_take"
        if address not in self.others:
            return {"refused": f"{address} does not answer"}
        await self.others[address].exchange.take(**message, payload=payload)
        return {"ok": True}

    @property
    def kept(self):
        """Return what lies here, by its key."""
        every = self.exchange._kept.values()
        return {key: bytes(part) for kept in every for key, part in {**kept.gradients, **kept.parameters}.items()}

    @property
    def lent_bytes(self):
        gc.collect()
        return sum(segment.n_bytes for segment in self.segments._lent.values())


@pytest.fixture
def nodes():
    others = {}
    made = [Node(others, name) for name in ("a", "b")]
    yield made
    for node in made:
        node.exchange.close()
        node.segments.close()


def frame(op, key, *, split=1, step=None, round=3, token=7, task="r/fit", to=("a",), needs=(), attempt=1):
    return {
        "op": op,
        "task": task,
        "attempt": attempt,
        "fence": Fence(1, token),
        "round": round,
        "split": split,
        "step": split if step is None else step,
        "key": key,
        "to": list(to),
        "needs": list(needs),
    }


def settle(node, header, result):
    answer = {"op": {"share": "shared", "apply": "applied"}[header["op"]]}
    return asyncio.run(node.exchange.settle(header, answer, result, 5.0))


def test_gradients_go_to_the_lead_s_node_and_its_step_frees_them(nodes):
    """Parameters go to the others' nodes, each once; those of the step before are gone then."""
    lead, other = nodes
    for key in ("g0", "g1"):
        settle(other, frame("share", key), LARGE)
    assert (lead.kept.keys(), other.kept) == ({"g0", "g1"}, {})
    assert lead.lent_bytes == 2 * LEAST_BYTES
    header = frame("apply", "p1", to=("a", "b"), needs=("g1", "g0"))
    assert lead.exchange.lay_out(header) == [], "they lie in shared memory"
    assert [n_bytes for _, _, n_bytes in header["parts"]] == [LEAST_BYTES] * 2
    settle(lead, header, b"parameters")
    assert lead.kept == other.kept == {"p1": b"parameters"}
    assert lead.lent_bytes == 0
    settle(lead, frame("apply", "p2", split=2, to=("b",)), b"newer")
    settle(lead, header, b"late")
    assert other.kept == {"p2": b"newer"}
    for node in nodes:
        node.exchange.forget("r/fit", 1)
        assert node.kept == {}


def test_a_step_may_have_several_splits(nodes):
    """What is left of a share that was cut is shared anew: the step needs the gradients of both splits."""
    lead, other = nodes
    settle(lead, frame("share", "g0", split=1, step=4), LARGE)
    settle(other, frame("share", "g1", split=2, step=4), LARGE)
    assert lead.kept.keys() == {"g0", "g1"}
    settle(lead, frame("apply", "p", split=2, step=4, needs=("g0", "g1")), b"parameters")
    assert lead.kept == {"p": b"parameters"}
    settle(lead, frame("share", "g2", split=3, step=5), LARGE)
    assert lead.kept.keys() == {"g2", "p"}


def test_small_ones_go_in_the_frame_and_half_of_them_is_nothing(nodes):
    lead, _ = nodes
    settle(lead, frame("share", "g0"), b"small")
    settle(lead, frame("share", "g1"), b"other")
    header = frame("apply", "p", needs=("g1", "g0"))
    assert lead.exchange.lay_out(header) == [b"other", b"small"]
    assert header["parts"] == [["", 0, 5], ["", 0, 5]]
    header = frame("apply", "p", needs=("g1", "g2"))
    assert lead.exchange.lay_out(header) == header["parts"] == []


@pytest.mark.parametrize(
    ("late", "why"),
    [
        (frame("share", "late", split=1), "its step is made"),
        (frame("share", "late", split=9, round=2), "its round is over"),
        (frame("share", "late", split=9, token=6), "its lease is over: there is a later one"),
        (frame("share", "late", split=2), "its lease was taken away"),
        (frame("share", "late", split=2, task="r/over"), "its task is over"),
        (frame("share", "late", split=2, token=8, task="r/void"), "its lease was taken away before anything came"),
    ],
)
def test_what_comes_late_is_not_kept(nodes, late, why):
    lead, other = nodes
    settle(other, frame("share", "g", task="r/over"), b"x")
    lead.exchange.forget("r/over", 1)
    settle(other, frame("share", "g0"), b"x")
    settle(lead, frame("apply", "p"), b"parameters")
    lead.exchange.revoke(Fence(1, 8))
    if why == "its lease was taken away":
        lead.exchange.revoke(Fence(1, 7))
    assert settle(other, late, b"late") == {"op": "shared"}, "nobody is blamed"
    assert lead.kept == {"p": b"parameters"}, why


def test_a_lease_that_is_taken_away_takes_its_gradients_along(nodes):
    """Those of another task's lease stay, and so do parameters, of which a later lease may go on."""
    lead, other = nodes
    settle(lead, frame("apply", "p", split=1), b"parameters")
    settle(other, frame("share", "g", split=2), LARGE)
    settle(other, frame("share", "h", split=2, token=9, task="r/other"), b"theirs")
    lead.exchange.revoke(Fence(1, 7))
    assert lead.kept == {"p": b"parameters", "h": b"theirs"}
    assert lead.lent_bytes == 0


def test_a_later_attempt_is_not_ended_by_the_end_of_a_former_one(nodes):
    lead, _ = nodes
    lead.exchange.forget("r/fit", 1)
    settle(lead, frame("share", "g", attempt=2), b"x")
    assert lead.kept == {"g": b"x"}


def test_a_node_that_does_not_answer_costs_the_lease(nodes):
    """As long as it is not there nothing can be exchanged; what an executor refuses itself goes nowhere."""
    lead, other = nodes
    answer = settle(lead, frame("share", "g", to=("b", "gone")), b"x")
    assert answer == {
        "op": "refused",
        "reason": "what was computed could not be brought to another node: gone does not answer",
    }
    assert other.kept == {"g": b"x"}
    refusal = {"op": "refused", "reason": "stale"}
    assert asyncio.run(lead.exchange.settle(frame("share", "h"), refusal, b"", 5.0)) == refusal
    assert lead.kept == {}
