import threading

import gymnasium
import pytest

from drlnb.fleet.tasks.planners import chosen
from drlnb.fleet.tasks.task import Task, task_specs
from drlnb.records.errors import ConfigError, EnvError
from drlnb.records.spec import ALGORITHMS
from drlnb.rl.pickled import unpack


def names(*tasks):
    return [spec.name for spec in task_specs(tasks)]


def test_a_bare_id_gets_its_tuned_settings():
    """CartPole-v1 is trained as rl-baselines3-zoo does, by two collectors."""
    spec = Task("CartPole-v1").spec
    assert (spec.total_timesteps, spec.n_envs, spec.n_collectors, spec.seed) == (100_000, 8, 2, 0)
    assert spec.hyperparameters["n_steps"] == 32
    assert "tuned settings" in spec.origin


def test_what_the_caller_says_wins():
    """Options and hyper-parameters replace the tuned ones."""
    spec = Task("CartPole-v1", total_timesteps=7, n_envs=4, n_collectors=4, seed=9, gamma=0.5, batch_size=64).spec
    assert (spec.total_timesteps, spec.n_envs, spec.n_collectors, spec.seed) == (7, 4, 4, 9)
    assert spec.hyperparameters["gamma"] == 0.5


def test_a_budget_is_a_number_of_bytes_in_the_spec():
    """It travels with the task; without one there is none."""
    assert Task("CartPole-v1", memory_budget="1.5MiB").spec.memory_budget_bytes == 1_572_864
    assert Task("CartPole-v1", memory_budget=7).spec.memory_budget_bytes == 7
    assert Task("CartPole-v1").spec.memory_budget_bytes is None


def test_one_environment_has_one_collector():
    """The default never asks for more collectors than there are environments."""
    assert Task("Foo-v0").spec.n_collectors == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"total_timesteps": 0}, "total_timesteps must be a whole number in 1..1000000000000000, got 0"),
        ({"seed": -1}, "seed must be a whole number in 0..4294967295, got -1"),
        ({"n_envs": True}, "n_envs must be a whole number in 1..100000, got True"),
        ({"n_envs": 10**18}, f"n_envs must be a whole number in 1..100000, got {10**18}"),
        (
            {"memory_budget": "12 apples"},
            "memory_budget must be a size from 1B to 8388607TiB, or none, got '12 apples'",
        ),
        ({"memory_budget": 0}, "memory_budget must be a size from 1B to 8388607TiB, or none, got 0"),
        ({"group": 5}, "group must be a word or None, got 5"),
        ({"name": 5}, "name must be 1 to 80 letters, digits, '-', '_' or '.', got 5"),
        ({"env_kwargs": {1: 2}}, "env_kwargs must be a mapping whose keys are words, got {1: 2}"),
        ({"env_kwargs": b"x"}, "env_kwargs must be a mapping whose keys are words, got b'x'"),
        ({"policy_kwargs": {1: 2}}, "policy_kwargs must be a mapping, with names as keys, got {1: 2}"),
        (
            {"net_arch": 8},
            "unknown hyper-parameter 'net_arch'; it is a part of policy_kwargs: policy_kwargs={\"net_arch\": ...}",
        ),
        ({"eval_episodes": -1}, "eval_episodes must be a whole number in 0..100000, got -1"),
        ({"eval_max_steps": 0}, "eval_max_steps must be a whole number in 1..1000000000000000, got 0"),
        ({"n_collectors": 9}, "n_collectors must be <= n_envs = 8, got 9"),
        ({"n_learners": 0}, "n_learners must be a whole number in 1..64, got 0"),
        (
            {"algo": "gpf", "n_epochs": 1, "n_learners": 9, "n_envs": 8},
            "n_learners must be <= n_collectors = 8, got 9: a learner computes what whole collectors made, so it needs "
            "n_collectors=9 and n_envs=9",
        ),
        (
            {"n_learners": 2},
            "n_learners must be 1 for ppo here, got 2: its minibatches are drawn from the whole round; gradients are "
            "computed at arrival with n_epochs=1; or deterministic=False: minibatches are shared, with other bits than "
            "one learner's",
        ),
        (
            {"n_learners": 2, "n_steps": 64},
            "n_learners must be 1 for ppo here, got 2: its minibatches are drawn from the whole round; gradients are "
            "computed at arrival with n_epochs=1 and batch_size=512; or deterministic=False: minibatches are shared, "
            "with other bits than one learner's",
        ),
        (
            {"algo": "dqn", "n_learners": 2, "n_envs": 2},
            "n_learners must be 1 for dqn here, got 2: each of its gradient steps needs the one before; several seeds "
            "use several slots",
        ),
        ({"n_step": 3}, "unknown hyper-parameter 'n_step'; did you mean 'n_steps'?"),
        ({"name": "a/b"}, "name must be 1 to 80 letters, digits, '-', '_' or '.', got 'a/b'"),
        ({"algo": "sac"}, f"algo must be one of {', '.join(ALGORITHMS)}, got 'sac'"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(wrong, message):
    """The error says which setting, which limit, which value."""
    with pytest.raises(ConfigError) as error:
        Task("CartPole-v1", **wrong)
    assert str(error.value) == message


def test_learners_bring_the_collectors_that_they_need():
    """Two where nothing is said, as many as learners, as many as environments; what is given counts."""
    gang = {"algo": "gpf", "n_epochs": 1}
    sizes = ({"n_learners": 1}, {"n_learners": 2}, {"n_learners": 4}, {"n_learners": 2, "n_collectors": 8})
    specs = [Task("CartPole-v1", **gang, **size).spec for size in sizes]
    assert [(spec.n_learners, spec.n_collectors) for spec in specs] == [(1, 2), (2, 2), (4, 4), (2, 8)]


@pytest.mark.parametrize("env", ["a:b:c", "my module:A-v0", "A-v0 ", ":A-v0", "A-v0:"])
def test_a_malformed_id_is_refused_at_construction(env):
    """One line with what an id looks like; nothing is imported or started for it."""
    with pytest.raises(
        ConfigError, match="env must be an id or module:id, without blanks and with one ':' at most"
    ) as e:
        Task(env)
    assert repr(env) in str(e.value)


def test_a_name_is_the_environments_id():
    """Characters that no file name bears become one dash."""
    assert names("CartPole-v1", "ale_py:ALE/Pong-v5") == ["CartPole-v1", "ale_py-ALE-Pong-v5"]


def test_several_seeds_show_in_the_names():
    """Only the environment that has several seeds gets them."""
    tasks = (Task("CartPole-v1", seed=0), Task("CartPole-v1", seed=3), Task("Acrobot-v1", seed=3))
    assert names(*tasks) == ["CartPole-v1-s0", "CartPole-v1-s3", "Acrobot-v1"]


def test_a_name_used_twice_gets_a_number():
    """Also where only the case differs: some file systems do not tell them apart."""
    assert names("CartPole-v1", "CartPole-v1", "CartPole-v1") == ["CartPole-v1", "CartPole-v1-2", "CartPole-v1-3"]
    assert names(Task("A-v0", name="x"), Task("B-v0", name="X")) == ["x", "X-2"]


def test_no_task_and_no_such_thing_are_refused():
    """A run needs tasks, and knows them when it sees them."""
    with pytest.raises(ConfigError, match="a run needs at least one task"):
        task_specs([])
    with pytest.raises(ConfigError, match=r"must be drlnb\.Task or environment ids, got 3"):
        task_specs(["CartPole-v1", 3])


def test_planners_default_to_those_that_exist():
    """What nobody chose is the default planner of each decision."""
    assert chosen().names == {
        "hold": "yield",
        "warmup": "saa",
        "batching": "jump-reset",
        "collect": "equal",
        "swapping": "auto",
        "distribution": "auto",
        "placement": "ect",
    }
    assert chosen({"hold": "last"}).names["hold"] == "last"


@pytest.mark.parametrize("decision", ["hold", "warmup", "batching", "collect", "swapping", "distribution", "placement"])
def test_an_unknown_planner_is_refused_with_the_known_ones(decision):
    """Each of the decisions knows its planners."""
    with pytest.raises(ConfigError, match=f"{chosen().names[decision]}.*got 'clever'"):
        chosen({decision: "clever"})


def test_an_unknown_decision_is_refused_with_the_nearest():
    """All problems are told at once."""
    with pytest.raises(ConfigError) as error:
        chosen({"holds": "last", "hold": "clever"})
    assert str(error.value) == (
        "unknown kind of planner 'holds'; did you mean 'hold'?; "
        "hold planner must be one of round, yield, last, got 'clever'"
    )


def test_a_factory_is_a_task():
    """A closure becomes a task named for people; its text builds the environment with the arguments given."""
    size = 3
    task = Task(lambda bonus: [size, bonus], env_kwargs={"bonus": 2}, n_envs=1)
    assert (task.spec.env, task.spec.env_kwargs) == ("lambda", {"bonus": 2})
    assert unpack(task.spec.env_factory)(**task.spec.env_kwargs) == [3, 2]


def test_a_factory_that_holds_a_lock_is_refused_by_name():
    """What keeps the factory from travelling is named before anything starts."""
    lock = threading.Lock()
    with pytest.raises(EnvError, match=r"variable 'lock' \(lock\)"):
        Task(lambda: lock)


def test_an_id_of_this_process_only_is_refused(monkeypatch):
    """An environment whose class lives in __main__ cannot be made elsewhere: the way out is told."""

    def build():
        raise AssertionError("never called")

    monkeypatch.setattr(build, "__module__", "__main__")
    gymnasium.register("InCell-v0", entry_point=build)
    try:
        with pytest.raises(EnvError, match="InCell-v0 is registered in this process only: use module:InCell-v0, or"):
            Task("InCell-v0")
    finally:
        gymnasium.registry.pop("InCell-v0")


def test_a_priority_is_a_whole_number():
    """It travels with the task; a fraction is refused in one line."""
    assert Task("CartPole-v1", priority=3)._spec.priority == 3
    with pytest.raises(ConfigError, match=r"priority must be a whole number in .*, got 1.5"):
        Task("CartPole-v1", priority=1.5)
