"""Both drivers end the same commands in the same events: the simulator's, and that of real processes on three nodes."""

import sys

import cloudpickle
import pytest
import torch

from drlnb.records import round as words
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.journal import Journal
from drlnb.sim.costs import Costs
from drlnb.sim.distribution.network import Network
from drlnb.sim.training import attempt
from drlnb.sim.training.fleet import run_tasks
from drlnb.sim.training.nodes import NodesSide
from tests.runtime import contract, swapped_net
from tests.runtime.contract import GONE, JoinsRound, RelayDies, Scripted, SharesSteps, answers, reached
from tests.runtime.fit.shared import written


def _play(monkeypatch, script, **more):
    """Return the journal of a script in the simulator."""
    monkeypatch.setattr(attempt, "RoundMachine", script)
    shape = {"n_slots": 1, "n_rounds": 1, "n_collectors": 3, "n_nodes": 3, "hold": "round", **more}
    _, (task,) = run_tasks([0], seed=0, costs=Costs(), **shape)
    assert task.end is not None, "the script came to its end"
    (stream,) = task.streams
    return stream


@pytest.fixture
def simulated(monkeypatch):
    """Return the journal of the whole script in the simulator."""
    return _play(monkeypatch, Scripted)


@pytest.fixture
def simulated_death(monkeypatch):
    """Return the journal of the script in which a relay dies, in the simulator."""
    pools, receive = [], Network._receive
    made = NodesSide.__post_init__

    def dying(self, leg, *times):
        command = leg.sent.command
        if command.version == 2 and leg.receiver == 1:
            pools[0].kill_node(command.hosts[leg.receiver])
        receive(self, leg, *times)

    monkeypatch.setattr(NodesSide, "__post_init__", lambda self: (pools.append(self.pool), made(self)))
    monkeypatch.setattr(Network, "_receive", dying)
    return _play(monkeypatch, RelayDies)


def test_the_script_in_the_simulator(simulated):
    """Each of three hosts completes each version that is sent to it, and the relay that is gone is named."""
    heard = answers(simulated, ("n0", "n1", "n2"))
    assert [row[1:] for row in heard if row[0] == "MessageLost"] == [("host 0", GONE, "('host 2',)")]
    assert [row[1:] for row in heard if row[0] == "HostUnreachable"] == [(GONE,), (GONE,)]
    assert [row[1:] for row in heard if row[0] == "HostCompleted"] == [
        ("host 0", "1"), ("host 0", "2"), ("host 0", "3"), ("host 1", "1"), ("host 1", "2"), ("host 2", "1"),
        ("host 2", "2"), ("host 2", "3"),
    ]  # fmt: skip


@pytest.mark.cluster
def test_both_drivers_answer_alike(make_bench, simulated):
    """Starts, wakes, a star, a chain over three nodes, a dead relay, compute under a plan, a search, a checkpoint."""
    for module in (contract, swapped_net):
        cloudpickle.register_pickle_by_value(module)
    bench = make_bench(n_workers=3)
    bench.client.run(contract.install)
    net = {"policy": swapped_net.wide, "policy_kwargs": {}}
    shape = {"n_envs": 3, "n_collectors": 3, "n_steps": 32, "batch_size": 24, "n_epochs": 1, "steps": 96}
    run = bench.start([bench.spec("a", **shape, **net)])
    assert run.end()["a"]["state"] == "done"
    stream = Journal.read(run.out).streams["task-a-a1"]
    nodes = next(event.collector_nodes for event in stream.of(words.PlacementReceived))
    assert len(set(nodes)) == 3
    assert answers(stream, nodes) == answers(simulated, ("n0", "n1", "n2"))
    completed = stream.of(HostCompleted)
    assert all(event.n_bytes > 0 and event.publish_s > 0.0 for event in completed)
    assert {event.version for event in stream.of(words.ExperienceArrived)} == {1, 2}, "the parameters are everywhere"


#: Two slots, and one node: what the scripts of gangs need.
GANG = {"n_slots": 2, "n_nodes": 1}


@pytest.fixture
def gangs(monkeypatch):
    """Return the journals of the scripts of gangs in the simulator."""
    fit = {"n_collectors": 0, "config": {"n_envs": 0, "n_collectors": 0, "n_steps": 3, **contract.FIT}}
    return _play(monkeypatch, SharesSteps, **GANG, **fit), _play(monkeypatch, JoinsRound, **GANG)


def test_the_scripts_of_gangs_in_the_simulator(gangs):
    """Each share is computed, each step made; the lead goes on from what it made, and from nothing else."""
    shared, joined = [answers(stream, ("n0",)) for stream in gangs]
    assert [row[1:] for row in shared if row[0] == "ShareComputed"] == [
        ("1", "0", "10"), ("1", "10", "6"), ("2", "0", "10"), ("2", "10", "6"),
    ]  # fmt: skip
    assert [row[1:] for row in shared if row[0] == "GradientsApplied"] == [
        ("0", "False"), ("0", "True"), ("1", "True"), ("2", "True"),
    ]  # fmt: skip
    assert [row for row in joined if row[0] == "RoundJoined"] == [("RoundJoined", "1")]


@pytest.mark.cluster
def test_both_drivers_answer_gangs_alike(make_bench, gangs, tmp_path):
    """Shares, a cut of one that is done, steps, a lead that goes on or cannot; and a round that two slots make."""
    cloudpickle.register_pickle_by_value(contract)
    torch.manual_seed(1)
    module, data = torch.nn.Linear(4, 1), torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
    (tmp_path / "files").mkdir()
    loss = torch.nn.functional.mse_loss
    fit = written(tmp_path / "files", module, data, loss, batch_size=16, total_timesteps=3).to_plain()
    bench = make_bench(n_slots=2)
    shape = {"n_envs": 3, "n_collectors": 3, "n_steps": 32, "batch_size": 48, "n_epochs": 1, "steps": 96}
    joins = {**bench.spec("a", **shape), "n_learners": 2, "deterministic": False}
    for script, spec, simulated in ((SharesSteps, fit, gangs[0]), (JoinsRound, joins, gangs[1])):
        bench.client.run(contract.install, script)
        run = bench.start([spec], run=script.__name__)
        assert run.end()[spec["name"]]["state"] == "done"
        stream = Journal.read(run.out).streams[f"task-{spec['name']}-a1"]
        (node,) = {event.slots[0].rpartition("/")[0] for event in stream.of(words.LeaseReceived)}
        assert answers(stream, (node,)) == answers(simulated, ("n0",))


#: A host that dies with the bytes in its hands is named; the one behind it is reported as cut off by it.
_DEATH = [
    ("HostCompleted", 1, "first"), ("HostCompleted", 1, "second"), ("HostCompleted", 1, "third"),
    ("HostCompleted", 2, "first"), ("MessageLost", 2, "first", "second", "third"),
]  # fmt: skip


def test_a_relay_that_dies_in_the_simulator(simulated_death):
    """The relay is named, and the host behind it."""
    assert reached(simulated_death) == _DEATH


@pytest.mark.cluster
def test_a_relay_that_dies_in_the_middle_of_a_send(make_bench):
    """SIGKILL of a node's process as the bytes arrive there: named, as in the simulator, and the task goes on."""
    cloudpickle.register_pickle_by_value(sys.modules[contract.__name__])
    bench = make_bench(n_workers=3)
    bench.client.run(contract.install_death)
    run = bench.start([bench.spec("a", n_envs=3, n_collectors=3, n_steps=32, batch_size=32, n_epochs=1, steps=96)])
    assert run.end()["a"]["state"] == "done"
    assert reached(Journal.read(run.out).streams["task-a-a1"]) == _DEATH
