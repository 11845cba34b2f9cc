"""`run.json` with values of a wrong kind, in every field of it: refused by name, never a bare error."""

import copy
import json
from dataclasses import fields

import pytest

from drlnb.fleet.tasks.planners import chosen
from drlnb.fleet.tasks.run_spec import RunSpec, run_spec, unusable
from drlnb.records.errors import ConfigError
from drlnb.records.kinds import kind_problems
from drlnb.records.spec import RlWork
from drlnb.runtime.files.run_directory import RunDir
from tests.fleet.conftest import small_task

#: One of each kind that JSON has, and what begins to be one.
WRONG = (None, -1.5, 10**30, "x", True, [], [1], {}, {"a": 1}, {"a": None})
#: Kinds that a field may have, by hand.
TEXT, NUMBER, MAPPING, LIST, NONE, FLAG = str, int, dict, list, type(None), bool
TASK_KINDS = {
    **{key: {TEXT} for key in ("name", "env", "algo", "origin")},
    **{key: {TEXT, NONE} for key in ("env_factory", "group")},
    **{key: {MAPPING} for key in ("env_kwargs", "hyperparameters")},
    **{key: {MAPPING, NONE} for key in ("eval_source", "observation_space", "action_space")},
    **{key: {NUMBER} for key in ("total_timesteps", "seed", "n_envs", "n_collectors", "n_learners")},
    **{key: {NUMBER} for key in ("eval_episodes", "eval_max_steps", "priority")},
    "env_wrappers": {LIST},
    "memory_budget_bytes": {NUMBER, NONE},
    "deterministic": {FLAG},
    "can_snapshot": {FLAG, NONE},
}
RUN_KINDS = {
    **{key: {TEXT} for key in ("run", "created")},
    "tasks": {LIST},
    **{key: {MAPPING} for key in ("planners", "settings", "versions", "own_planners", "pool")},
    "patent": {FLAG},
}


@pytest.fixture(scope="module")
def whole():
    return json.loads(json.dumps(run_spec([small_task()], chosen("auto")).to_plain()))


@pytest.fixture
def read(tmp_path, whole):
    """Return what reads a run.json that differs at one place."""
    (tmp_path / "run").mkdir()

    def read_changed(at, value):
        plain = copy.deepcopy(whole)
        place = plain
        for key in at[:-1]:
            place = place[key]
        place[at[-1]] = value
        (tmp_path / "run" / "run.json").write_text(json.dumps(plain))
        return RunSpec.read(RunDir(tmp_path / "run"))

    return read_changed


def paths(value, at=()):
    """Yield the way to every value below one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*at, key)
        yield from paths(item, (*at, key))


def test_every_field_has_its_kinds_here():
    """A field that is added must say what it may hold, and is then held to it below."""
    assert TASK_KINDS.keys() == {field.name for field in fields(RlWork)}
    assert RUN_KINDS.keys() == {field.name for field in fields(RunSpec)}


@pytest.mark.parametrize("field", [*(("tasks", 0, name) for name in TASK_KINDS), *((name,) for name in RUN_KINDS)])
def test_a_field_of_another_kind_is_refused_by_name(read, field):
    """What it may not hold by its kind is never taken."""
    kinds = (TASK_KINDS if len(field) == 3 else RUN_KINDS)[field[-1]]
    for value in WRONG:
        if type(value) in kinds:
            continue
        with pytest.raises(ConfigError, match="is not what drlnb wrote") as refused:
            read(field, value)
        assert field[-1] in str(refused.value), value
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.thorough
def test_no_value_anywhere_ends_in_a_bare_error(read, whole):
    """At each place of the file, with each kind of value: it is read, or refused in one line; so by a resume."""
    n_refused = 0
    for at in paths(whole):
        for value in WRONG:
            try:
                problems = unusable(read(at, value))
            except ConfigError as error:
                problems = [str(error)]
            n_refused += bool(problems)
            assert all(len(problem.splitlines()) == 1 for problem in problems)
    assert n_refused > 300


def test_mappings_and_lists_are_looked_into():
    """A planner that is a number, a wrapper that is text."""
    assert kind_problems(RunSpec, {"planners": {"hold": 3}}) == ["planners must be names with text, got {'hold': 3}"]
    assert kind_problems(RlWork, {"env_wrappers": ["x"]}) == ["env_wrappers must be a list, got ['x']"]
    assert kind_problems(RlWork, {"group": 3}) == ["group must be text or null, got 3"]


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (("planners", "hold"), "lst", "did you mean"),
        (("tasks", 0, "priority"), 10**30, "priority must"),
        (("tasks", 0, "memory_budget_bytes"), -1, "memory_budget_bytes"),
        (("tasks", 0, "env_wrappers"), [{"name": "a:"}], "wrapper 'a:' must be module:Class"),
        (("tasks", 0, "observation_space", "shape"), "x", "observation_space describes no space"),
        (("tasks", 0, "action_space", "n"), None, "action_space describes no space"),
        (("settings", "env_timeout_s"), "x", "env_timeout_s must be"),
    ],
)
def test_a_resume_refuses_what_nobody_can_have_asked_for(read, at, value, said):
    """Before a cluster is started."""
    (problem,) = unusable(read(at, value))
    assert said in problem


def test_a_resume_refuses_learners_that_cannot_share_a_gradient(read, whole):
    """Rounds of epochs; the way out is named."""
    gang = {**whole["tasks"][0], "n_collectors": 2, "n_learners": 2}
    (problem,) = unusable(read(("tasks", 0), gang))
    assert problem == (
        "task a: n_learners must be 1 for ppo here, got 2: its minibatches are drawn from the whole round; gradients "
        "are computed at arrival with n_epochs=1 and batch_size=64; or deterministic=False: minibatches are shared, "
        "with other bits than one learner's"
    )
