"""What a collector's environments go on from: a checkpoint, their node, where they were last, or a new beginning."""

import asyncio
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from drlnb.records.columns.warmup import StartCollector
from drlnb.rl.fragments import Fragment
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
            reply = {"slot": {"keeps_cpu": False}, "fragment": header, "payload": payload}
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
