"""Whom does a fleet wait for on a cluster, and what does it say of the others?  The scheduler's answers are played."""

from types import SimpleNamespace

import pytest

from drlnb.records.errors import ConfigError, PeerError
from drlnb.runtime.client import link as module
from drlnb.runtime.client.link import Link
from drlnb.runtime.files import versions
from drlnb.runtime.node.bootstrap import Bootstrap, by_value

A, B = "tcp://a:1", "tcp://b:1"


class PlayedLink(Link):
    """Answers with what each look finds: the workers, those with agents, and those without; the last look goes on."""

    def __init__(self, *looks):
        self.wishes, self.said = [], []
        client = SimpleNamespace(
            scheduler=SimpleNamespace(address="tcp://s:1"),
            submit=lambda *a, **how: self.wishes.append(how["key"]) or "a future",
        )
        super().__init__(client, say=self.said.append)
        self.looks = list(looks)

    def _call(self, op, *, timeout_s=0.0, **message):
        assert op == "ncores"
        self.now = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return dict.fromkeys(self.now[0], 1)

    def _ask(self, op, *, timeout_s=0.0, **message):
        assert op == "drlnb_nodes"
        return {"nodes": [{"address": address} for address in self.now[1]], "unused": self.now[2]}


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    for name in ("_LATE_S", "_AGENTS_S", "_SCALE_S"):
        monkeypatch.setattr(module, name, 0.0)


def test_every_worker_is_waited_for_that_may_still_answer(monkeypatch):
    """Those that say why they cannot be used are answered; who is silent is named once others are up."""
    monkeypatch.setattr(module, "_LATE_S", 60.0)
    link = PlayedLink(([A, B], [], {}), ([A, B], [A], {}), ([A, B], [A], {B: "has no drlnb"}))
    monkeypatch.setattr(module, "_AGENTS_S", 60.0)
    assert link._wait_for_nodes(None) == []
    assert len(link.looks) == 1, "both looks before that were not enough"
    monkeypatch.setattr(module, "_LATE_S", -1.0)
    assert PlayedLink(([A, B], [A], {}))._wait_for_nodes(None) == [f"worker {B} does not answer: it is not used"]


def test_a_cluster_of_our_own_is_waited_for_whole():
    """Fewer agents than it has workers are not enough."""
    assert PlayedLink(([A], [A], {}), ([A, B], [A, B], {}))._wait_for_nodes(1) == []
    with pytest.raises(PeerError, match=rf"cluster: 1 of 2 node agents reported in time; no word from {B}"):
        PlayedLink(([A, B], [A], {}))._wait_for_nodes(2)


def test_a_cluster_where_nobody_can_be_used_is_refused():
    """With the reason of each worker; a worker that only is silent is named as such."""
    with pytest.raises(ConfigError) as error:
        PlayedLink(([A, B], [], {A: "has no drlnb", B: "lacks torch"}))._wait_for_nodes(None)
    assert error.value.problems == (f"worker {A} has no drlnb", f"worker {B} lacks torch")
    with pytest.raises(PeerError, match=rf"0 of 2 node agents reported in time; no word from {B}$"):
        PlayedLink(([A, B], [], {A: "has no drlnb"}))._wait_for_nodes(None)


def test_a_cluster_without_workers_is_asked_for_one(monkeypatch):
    """Once, by a task that adaptive scaling sees; the wait is said, and it ends."""
    monkeypatch.setattr(module, "_SCALE_S", 60.0)
    link = PlayedLink(([], [], {}), ([], [], {}), ([A], [A], {}))
    assert link._wait_for_nodes(None) == []
    assert len(link.wishes) == 1
    assert link.said == ["no worker is there yet: waiting up to 60 s for the cluster to scale"]
    monkeypatch.setattr(module, "_SCALE_S", 0.0)
    with pytest.raises(PeerError, match="no worker came: scale the cluster"):
        PlayedLink(([], [], {}))._wait_for_nodes(None)


MINE = {"drlnb": "1.0", "python": "3.11.7", "torch": "2", "gymnasium": "1"}


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        ({}, ""),
        ({"python": "3.11.2", "torch": "3"}, ""),
        ({"drlnb": "missing"}, "has no drlnb; install it there with: pip install drlnb==1.0"),
        ({"drlnb": "0.9"}, "has drlnb 0.9 on Python 3.11, this client drlnb 1.0 on Python 3.11"),
        ({"python": "3.12.0"}, "has drlnb 1.0 on Python 3.12, this client drlnb 1.0 on Python 3.11"),
        ({"gymnasium": "missing"}, "lacks torch or gymnasium"),
    ],
)
def test_what_keeps_a_worker_from_being_used(theirs, why):
    """Our version and Python's minor one must be the same; a scheduler needs neither torch nor gymnasium."""
    assert versions.problem({**MINE, **theirs}, MINE) == why
    assert versions.problem({**MINE, **theirs}, MINE, computes=False) == ("" if "gymnasium" in theirs else why)


def test_what_travels_to_workers_needs_no_drlnb_there():
    """Its bytes name no module of ours that would be imported to read them."""
    packed = by_value(Bootstrap("drlnb-agent", MINE, "drlnb.runtime.node.plugin:AgentPlugin"))
    assert b"Bootstrap" in packed
    assert b"cloudpickle" in packed
