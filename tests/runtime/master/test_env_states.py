"""What a collector's environments go on from: a checkpoint, their node, where they were last, or a new beginning."""

import asyncio
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from drlnb.records.columns.warmup import StartCollector
from drlnb.records.round import WriteCheckpoint
from drlnb.rl.fragments import Fragment
from drlnb.runtime.master import checkpoint_effects
from drlnb.runtime.master.checkpoint_effects import CheckpointEffects
from drlnb.runtime.master.collector_effects import CollectorEffects

#: Where a checkpoint has its environments.
SAVED = {"round": 3, "envs": {"0": {"snapshot": b"saved"}}}


@pytest.fixture
def make_effects():
    """Return a maker of the effects of a master, of whose one collector's rounds each brings a state, or None."""

    def make(saved, *states):
        host = SimpleNamespace(feed=lambda kind, **fields: None)
        effects = CollectorEffects(SimpleNamespace(envs=saved, acted=set(), experience={}, attempt=1, host=host))
        counts = {"version": 1, "n_samples": 1, "collect_s": 0.1, "episodes": []}
        for round_, state in enumerate(states, 1):
            header, payload = Fragment({"round": round_, **counts}, {"action": np.full((1, 1), round_)}).pack()
            reply = {"queued_s": 0.0, "fragment": header, "payload": payload}
            known = {} if state is None else {"state": pickle.dumps(state)}

            async def act(op, command, reply=reply | known):
                return reply

            effects._act = act
            asyncio.run(effects.wake(SimpleNamespace(collector=0, round=round_)))
        return effects

    return make


def begins_with(effects, **given):
    """Return what the collector's next process is given."""
    command = StartCollector(collector=0, node="n0", env_indices=(0,), after_s=0.0, **given)
    payload = effects._env_states(command)
    return pickle.loads(payload) if payload else None


@pytest.mark.parametrize("saved", [None, SAVED])
def test_before_it_has_acted_it_has_what_the_checkpoint_has(make_effects, saved):
    """Nothing, of a task that begins."""
    assert begins_with(make_effects(saved)) == saved
    assert begins_with(make_effects(saved), round=1) == saved


def test_a_lost_one_goes_on_from_its_last_state_and_takes_the_actions_since(make_effects):
    """The next state makes them obsolete."""
    first = {"round": 2, "envs": {"0": {"snapshot": b"1"}}}
    assert begins_with(make_effects(SAVED, first)) == {**first, "actions": []}
    found = begins_with(make_effects(SAVED, first, None, None))
    assert [actions.tolist() for actions in found.pop("actions")] == [[[2]], [[3]]]
    assert found == first
    second = {"round": 4, "envs": {"0": {"snapshot": b"3"}}}
    assert begins_with(make_effects(SAVED, first, None, second)) == {**second, "actions": []}


def test_one_that_its_node_keeps_is_given_nothing(make_effects):
    """Its environments lie where it ended between two rounds."""
    assert begins_with(make_effects(SAVED, {"round": 2, "envs": {}}), round=2) is None


@pytest.mark.parametrize(("states", "anew"), [((None,), False), (({"round": 2, "envs": {}},), True)])
def test_what_cannot_be_restored_begins_anew_with_seeds_of_its_own(make_effects, states, anew):
    """Of environments that cannot be frozen; and if it was lost once more with its last state."""
    assert begins_with(make_effects(SAVED, *states), anew=anew) == {"round": 1, "envs": {"0": {"snapshot": None}}}


def test_the_present_rounds_beginning_is_known_until_the_next_one(make_effects):
    """A state says before which round it was; the one that a collector sends at this round's end is another one."""
    first, second = ({"round": k, "envs": {"0": {"snapshot": b"%d" % k}}} for k in (2, 3))
    assert make_effects(SAVED).found(3) == [SAVED]
    assert make_effects(SAVED, first).found(2) == [first]
    assert make_effects(SAVED, first, None).found(2) == [first]
    assert make_effects(None, first, second).found(2) == [first]
    assert make_effects(None, first, second).found(3) == [second]
    assert make_effects(None, first, None).found(3) == [], "the actions since are in no checkpoint"


class Saver:
    """Writes a checkpoint of a task whose collectors answer after so many seconds, or never."""

    def __init__(self, monkeypatch, *, found=(), acted=(0,), envs=None, answers=()):
        monkeypatch.setattr(checkpoint_effects, "_ANSWER_S", 0.01)
        self.answers = dict(answers)
        master = SimpleNamespace(acted=set(acted), envs=envs)
        self.effects = CheckpointEffects(master, self.ask, lambda version: list(found), None)

    async def ask(self, collector, node, *, op):
        if collector not in self.answers:
            await asyncio.Event().wait()
        return self.answers[collector]

    def saved(self, collectors=(), reason="stop"):
        command = WriteCheckpoint(version=3, n_rounds=2, n_timesteps=64, reason=reason, collectors=collectors)
        return asyncio.run(self.effects._envs(command))


def rests(**envs):
    return {"op": "state", "payload": pickle.dumps({"round": 3, "envs": envs})}


def test_who_does_not_answer_a_stop_is_saved_as_the_round_found_it(monkeypatch):
    """What is known of it; else its environments begin anew, and are counted: not those of the task's beginning."""
    both, known = ((0, "n0"), (1, "n0")), {"round": 3, "envs": {"1": b"found"}}
    rested = {0: rests(**{"0": b"rests"})}
    assert Saver(monkeypatch, answers=rested, found=[known]).saved(both)["envs"] == {"0": b"rests", "1": b"found"}
    assert Saver(monkeypatch, answers=rested).saved(both) == {"round": 3, "envs": {"0": b"rests"}}
    assert Saver(monkeypatch, answers={0: {"refused": "gone"}}).saved(both) == {"round": 3, "envs": {}}
    assert Saver(monkeypatch, found=[known]).saved() == known


@pytest.mark.parametrize("envs", [None, SAVED])
def test_before_anybody_has_acted_environments_are_where_the_task_began(monkeypatch, envs):
    """Nothing is lost: a resume makes them alike."""
    assert Saver(monkeypatch, acted=(), envs=envs).saved() == envs
