import dataclasses
import queue

import pytest

import drlnb
from drlnb.records.base import record_types
from drlnb.records.journal import StreamOpened
from drlnb.records.spec import RlWork
from drlnb.runtime.files.lock import Lock
from tests.runtime.live import foreign_cluster, make_foreign

__all__ = [
    "FakeLink",
    "ended",
    "finished",
    "fleet",
    "foreign_cluster",
    "header",
    "link",
    "make_foreign",
    "open_fleet",
    "opened",
    "row",
    "specs",
]


class FakeLink:
    """A cluster that says what a test tells it to say."""

    address = "tcp://nowhere:1"
    client = None

    def __init__(self):
        self.pages = queue.Queue()
        self.asked = []
        self.patience_s = []
        self.created = []
        self.started = []
        self.known = []
        box = {"kind": "box", "shape": [4], "dtype": "float32", "low": [None], "high": [None]}
        self.spaces = {"observation_space": box, "action_space": {"kind": "discrete", "n": 2}}
        self.failure = None
        self.n_rows = 0

    def say(self, *rows, gap=False):
        self.pages.put((list(rows), gap))

    def probe_env(self, env, env_timeout_s):
        self.asked.append(("probe", env))
        self.patience_s.append(env_timeout_s)
        return self.spaces

    def create_run(self, run):
        if self.failure:
            raise self.failure
        self.created.append(run)

    def submit_anchors(self, run_id, tasks):
        self.started.append((run_id, list(tasks)))

    def control(self, run_id, action, *, task=None, reason=""):
        self.asked.append((action, task))

    def slow_down(self, run_id, task, member, factor, n_rounds):
        self.asked.append(("slow", task, member, factor, n_rounds))

    def restart(self, run_id, task):
        if self.failure:
            raise self.failure
        self.asked.append(("restart", task))
        return 1 + sum(wish == ("restart", task) for wish in self.asked)

    def rows(self, run_id, since, wait_s):
        if self.failure:
            raise self.failure
        try:
            rows, gap = self.pages.get(timeout=0.01)
        except queue.Empty:
            return since, [], False
        return since + len(rows), rows, gap

    def runs(self):
        return self.known

    def lock(self, run_id):
        return Lock(run=run_id, epoch=1, address=self.address)

    def close(self):
        pass


def _running(*names):
    return [{"run": "r1", "state": "running", "tasks": {name: {"state": "running", "reason": ""} for name in names}}]


@pytest.fixture
def link():
    made = FakeLink()
    made.known = _running("a", "b")
    return made


@pytest.fixture
def specs():
    return tuple(RlWork(name=name, env="CartPole-v1", total_timesteps=1000, n_envs=1) for name in ("a", "b"))


#: Values of fields that a test says nothing about, by annotation.
BLANK = {int: 0, float: 0.0, str: "", bool: False}


def row(task, kind, attempt=1, **fields):
    """Return a streamed row; fields without a default that are not given have a blank value."""
    known = dataclasses.fields(record_types()[kind])
    blank = {f.name: BLANK.get(f.type, []) for f in known if f.default is f.default_factory is dataclasses.MISSING}
    return {"s": f"task-{task}-a{attempt}", "k": "d", "r": kind, **blank, **fields}


def header(task, attempt=1):
    made = StreamOpened(
        stream=f"task-{task}-a{attempt}", machine="round", config={}, origin="measured", version="0.1.0"
    )
    return {"s": made.stream, **made.to_row()}


def opened(task, attempt=1, n_rounds=0, n_timesteps=0):
    fields = {"version": 0, "elapsed_s": 0.0, "episodes": [], "n_bytes": 0}
    fields |= {"attempt": attempt, "n_rounds": n_rounds, "n_timesteps": n_timesteps, "t": 0.5}
    return row(task, "TaskOpened", attempt) | fields | {"k": "e"}


def finished(task, n_rounds, attempt=1, **metrics):
    steps = 100 * n_rounds
    scalars = {"time/iterations": n_rounds, "time/total_timesteps": steps, "round/time_s": 1.0, **metrics}
    return row(task, "MetricsRecorded", attempt, round=n_rounds, n_timesteps=steps, metrics=scalars)


def ended(task, state="done", reason="", attempt=1):
    return row(task, "EndTask", attempt, state=state, reason=reason) | {"k": "c"}


def small_task(**given):
    """Return the spec of a small PPO task with its spaces; keywords that are no field are hyper-parameters."""
    from drlnb.rl.envs.make import probe

    top = {"name": "a", "env": "CartPole-v1", "algo": "ppo", "seed": 3, "n_envs": 4, "total_timesteps": 1000}
    top |= {key: given.pop(key) for key in list(given) if key in top}
    hyper = {"n_steps": 16, "batch_size": 32, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}, **given}
    return RlWork(hyperparameters=hyper, **top, **probe(top["env"]))


@pytest.fixture(scope="module")
def open_fleet(tmp_path_factory):
    """Open a fleet for all tests of a module; it has trained: whatever lives as long as it is there."""
    small = {"n_steps": 32, "batch_size": 64, "n_epochs": 4, "n_envs": 4, "policy_kwargs": {"net_arch": [16]}}
    with drlnb.Fleet(slots=1) as fleet:
        task = drlnb.Task("CartPole-v1", total_timesteps=128, **small)
        fleet.train(task, out=tmp_path_factory.mktemp("first") / "r").wait(60)
        yield fleet


@pytest.fixture
def fleet(open_fleet):
    """Return the fleet; connections that its client keeps for later are closed after the test."""
    yield open_fleet
    client = open_fleet.pool.link.client

    async def collect():
        client.rpc.collect()

    client.sync(collect)
