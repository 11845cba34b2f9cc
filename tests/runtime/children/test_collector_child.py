"""What a collector's process answers its agent, in this process."""

import random
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from drlnb.records.errors import EnvError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.envs import make
from drlnb.rl.envs.make import probe
from drlnb.rl.pickled import pack
from drlnb.runtime.children import collector, padding, pulse
from drlnb.runtime.children.collector import CollectorChild
from drlnb.runtime.ipc.frames import FrameSocket, socket_pair
from drlnb.runtime.ipc.host_store import HostStore
from drlnb.runtime.ipc.step_count import StepCount

NOTHING = memoryview(b"")


def a_task(env="CartPole-v1", **more):
    hyper = {"n_steps": 8, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": [4]}}
    sizes = {"total_timesteps": 100, "n_envs": 2, "eval_max_steps": 30}
    return RlWork(name="a", env=env, hyperparameters=hyper, **probe({"env": env, **more}), **sizes, **more)


@pytest.fixture
def made(monkeypatch):
    """Count the environments that are made."""
    envs = []

    def counted(*args, **kwargs):
        envs.append(original(*args, **kwargs))
        return envs[-1]

    original = gymnasium.make
    monkeypatch.setattr(make.gymnasium, "make", counted)
    return envs


@pytest.fixture
def child(monkeypatch):
    """Return a collector child whose agent listens to nothing; this process keeps its own title."""
    monkeypatch.setattr(collector, "become", lambda title: None)
    ours, theirs = socket_pair()
    with ours, theirs:
        child = CollectorChild(FrameSocket(theirs))
        child.seen = []
        before = signal.signal(signal.SIGUSR1, child.interrupt)
        yield child
        signal.signal(signal.SIGUSR1, before)
        for count in (*child.seen, child._steps):
            count.close()
        if child.collector is not None:
            child.collector.close()


def configured(child, spec, *, payload=NOTHING, **more):
    header = {"op": "configure", "spec": spec.to_plain(), "collector": 0, "env_indices": [0, 1]}
    child._steps.close()
    with StepCount.shared() as (count, path):
        child.seen.append(count)
        return child.answer({**header, "attempt": 1, "number": 1, "steps": path, **more}, payload)[0]["event"]


class Dice(gymnasium.Env):
    """Shows what numpy's and Python's global generators give; as careless as many simulators."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.array([np.random.rand(), random.random()]), {}  # noqa: NPY002

    def step(self, action):
        return self.reset()[0], 0.0, False, False, {}


@pytest.fixture
def global_generators():
    """Leave them as they were."""
    kept = random.getstate(), np.random.get_state()  # noqa: NPY002
    yield
    random.setstate(kept[0])
    np.random.set_state(kept[1])  # noqa: NPY002


@pytest.mark.usefixtures("global_generators")
def test_global_generators_differ_between_collectors_tasks_and_lives(child):
    """And only then: the same process of the same task draws the same numbers, whatever was drawn before."""
    spec = a_task("Dice", env_factory=pack(Dice))
    first = {"seed": 5, "env_indices": [0, 1], "attempt": 1, "number": 1}
    others = [{"seed": 6}, {"env_indices": [1]}, {"attempt": 2}, {"number": 2}]
    drawn = []
    for change in ({}, *others, {}):
        more = {**first, **change}
        configured(child, replace(spec, seed=more.pop("seed")), **more)
        drawn.append(child.collector.state()["envs"][str(more["env_indices"][-1])]["obs"])
    assert drawn[-1] == drawn[0]
    numbers = [np.frombuffer(row).tolist() for row in drawn[:-1]]
    assert [len({row[which] for row in numbers}) for which in (0, 1)] == [5, 5]


def test_all_environments_are_closed_although_one_raises(child):
    """What it raises is told when the others are closed."""
    closed = []

    def refuse():
        raise OSError("its window is gone")

    configured(child, a_task())
    child.collector.envs[0].close = lambda: closed.append(0)
    child.collector.envs[1].close = refuse
    with pytest.raises(OSError, match="its window is gone"):
        child.close()
    assert closed == [0]
    child.collector = None


def test_where_its_environments_are_can_be_seen_from_outside(child, tmp_path, monkeypatch):
    """While they are made, in each step, and nowhere while they rest: as its agent finds it if this process dies."""
    spec, seen = a_task(), []
    step, reset = CartPoleEnv.step, CartPoleEnv.reset
    monkeypatch.setattr(CartPoleEnv, "step", lambda *a, **k: seen.append(child.seen[-1].where) or step(*a, **k))
    monkeypatch.setattr(CartPoleEnv, "reset", lambda *a, **k: seen.append(child.seen[-1].where) or reset(*a, **k))
    configured(child, spec)
    assert set(seen) == {"while its environments were made"}
    assert child.seen[-1].where == ""
    seen.clear()
    published = make_learner(spec).published()
    store = HostStore(len(published))
    store.write(1, published)
    child.answer(wake(store, 1), NOTHING)
    assert seen == [f"in step {k} since it was woken" for k in range(1, 5) for _ in range(2)]
    assert child.seen[-1].where == ""
    store.close()
    child.store.close()
    child.close()
    child.collector = None


def test_a_frame_that_nobody_waits_for_is_not_begun(child):
    """Its agent is gone: an environment would be stepped in vain; one that is inside a step is interrupted."""
    configured(child, a_task())
    child.in_env = True
    with pytest.raises(EnvError, match="its agent is gone"):
        child.leave()
    with pytest.raises(ConnectionError, match="nobody waits"):
        child.answer({"op": "state"}, NOTHING)


@pytest.mark.parametrize(
    ("last", "elsewhere", "more"), [(True, None, 0), (True, {"env": "CartPole-v0"}, 3), (False, None, 3)]
)
@pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date")
def test_the_evaluation_at_the_end_makes_no_other_environments(child, made, tmp_path, last, elsewhere, more):
    """It plays in the collector's own two; one elsewhere cannot, and one while training leaves their episodes alone."""
    spec = a_task(eval_source=elsewhere)
    published = make_learner(spec).published()
    store = HostStore(len(published))
    store.write(1, published)
    configured(child, spec)
    made.clear()
    header = {"op": "evaluate", "version": 1, "store": store.path, "n_episodes": 3, "deterministic": True, "last": last}
    answer, _ = child.answer(header, NOTHING)
    assert len(made) == more
    assert [length <= 30 for _, length in answer["event"]["episodes"]] == [True] * 3
    child.store.close()
    store.close()


def wake(store, version):
    return {"op": "wake", "version": version, "round": version, "n_steps": 4, "n_timesteps": 0, "store": store.path}


def test_a_round_is_acted_with_the_version_in_place(child, tmp_path, monkeypatch):
    """It is held for the whole round: as many versions as the store has slots change nothing of what is acted."""
    spec = a_task()
    published = make_learner(spec).published()
    rounds = []
    for writes in (False, True):
        store = HostStore(len(published))
        store.write(1, published)
        configured(child, spec)

        def publish(store=store):
            for version in range(store.current[1] + 1, store.current[1] + 6):
                store.write(version, bytes(len(published)))

        monkeypatch.setattr(child, "alive", publish if writes else lambda: None)
        rounds.append(bytes(child.answer(wake(store, 1), NOTHING)[1][0]))
        assert store.applied() == (1, 1)
        assert store.current == (1, 21 if writes else 1)
        child.close()
        store.close()
    assert rounds[0] == rounds[1]
    child.store.close()
    child.collector = None


def test_a_store_that_took_the_place_of_another_is_attached_anew(child, tmp_path):
    """Under the same path: the number of a descriptor that was closed is given again."""
    spec = a_task()
    published = make_learner(spec).published()
    configured(child, spec)
    paths = []
    for version in (1, 2):
        store = HostStore(len(published) if version == 2 else 5)
        paths.append(store.path)
        store.write(version, published if version == 2 else bytes(5))
        if version == 1:
            with pytest.raises(ValueError, match="parameters must be"):
                child.answer(wake(store, 1), NOTHING)
        else:
            child.answer(wake(store, 2), NOTHING)
            with pytest.raises(RuntimeError, match="the host store holds version 2, asked for 3"):
                child.answer(wake(store, 3), NOTHING)
        store.close()
    assert paths[0] == paths[1]
    child.store.close()
    child.close()
    child.collector = None


@pytest.mark.parametrize("factor", [31.0, 2.0])
def test_a_collector_that_is_slowed_down_acts_the_same_and_says_what_it_took(child, monkeypatch, factor):
    """It sleeps after it has acted, its agent hears of it meanwhile, and no bit is another one."""
    spec, slept, beats = a_task(), [], []
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + sum(slept), sleep=slept.append)
    monkeypatch.setattr(padding, "time", clock)
    monkeypatch.setattr(child._pulse, "beat", lambda: beats.append(child.in_env))
    monkeypatch.setattr(pulse, "_PULSE_S", 0.0)
    published = make_learner(spec).published()
    store = HostStore(len(published))
    store.write(1, published)
    acted, n_beats = [], []
    for slowed in (1.0, factor):
        configured(child, spec)
        answer, (packed,) = child.answer(wake(store, 1) | {"slowed": slowed}, NOTHING)
        acted.append((bytes(packed), answer["fragment"]["collect_s"]))
        n_beats.append(len(beats))
    assert acted[0][0] == acted[1][0]
    assert acted[1][1] == pytest.approx(sum(slept) / (1 - 1 / factor), rel=0.1)
    assert n_beats[1] > 2 * n_beats[0]
    assert not any(beats), "half a frame would be the end of the channel"
    store.close()
    child.store.close()
    child.close()
    child.collector = None
