from dataclasses import replace

import pytest

from drlnb.fleet.cluster.pool import connect
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.launch import launch
from drlnb.fleet.tasks.planners import chosen
from drlnb.fleet.tasks.run_spec import RunSpec, run_spec
from drlnb.fleet.tasks.task import Task, task_specs
from drlnb.records.errors import ConfigError, EnvError, RunLocked
from drlnb.runtime.files.run_directory import RunDir


@pytest.fixture
def spec():
    return run_spec(task_specs(["CartPole-v1", "Acrobot-v1", "CartPole-v1"]), chosen({"hold": "last"}))


@pytest.fixture
def start(link, spec, tmp_path):
    return lambda on_existing="error": launch(link, spec, tmp_path / "run", on_existing)


def test_a_launch_tries_each_environment_once_and_starts_every_task(link, start, tmp_path):
    """The spaces are in run.json, the run is registered with its planners, the lock is there, the masters start."""
    run, begun = start()
    assert [wish for wish in link.asked if wish[0] == "probe"] == [("probe", "CartPole-v1"), ("probe", "Acrobot-v1")]
    assert run.path == tmp_path / "run"
    assert [task["action_space"]["n"] for task in run.read_spec()["tasks"]] == [2, 2, 2]
    created = link.created[0]
    assert (created["resume"], created["out"], created["planners"]["hold"]) == (False, str(run.path), "last")
    assert link.started == [(begun.run, ["CartPole-v1", "Acrobot-v1", "CartPole-v1-2"])]
    assert run.read_lock().run == begun.run


@pytest.mark.parametrize("patience_s", [60.0, 300.0, None])
def test_an_environment_has_as_long_to_be_tried_as_to_be_made(link, tmp_path, patience_s):
    """A simulator that starts in two minutes is no hanging one where the caller says so."""
    launch(link, run_spec(task_specs(["CartPole-v1"]), chosen(), env_timeout_s=patience_s), tmp_path / "run")
    assert link.patience_s == [patience_s]


def test_an_environment_that_cannot_be_built_leaves_no_directory(link, spec, tmp_path, monkeypatch):
    """All of them are named at once."""

    def probe(env, _):
        raise EnvError(f"{env} raised in its constructor")

    monkeypatch.setattr(link, "probe_env", probe)
    with pytest.raises(EnvError, match="CartPole-v1 raised in its constructor; Acrobot-v1 raised in its constructor"):
        launch(link, spec, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_algorithm_that_cannot_serve_the_actions_is_refused_before_anything_is_made(link, tmp_path):
    """DQN on a box of torques: the message says what fits, nothing is registered, no directory is there."""
    box = {"kind": "box", "shape": [1], "low": [-2.0], "high": [2.0], "dtype": "float32"}
    link.spaces = {**link.spaces, "action_space": box}
    spec = run_spec(task_specs([Task("Pendulum-v1", "dqn"), "Acrobot-v1"]), chosen({}))
    with pytest.raises(ConfigError, match="dqn needs discrete actions, Pendulum-v1 takes box ones: choose ppo"):
        launch(link, spec, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert link.created == []


def test_a_run_that_the_cluster_refuses_leaves_no_directory(link, spec, tmp_path):
    """What was made for it is taken away again."""
    link.failure = RunLocked("in use by run r0")
    with pytest.raises(RunLocked, match="in use by run r0"):
        launch(link, spec, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_goes_on_keeps_its_id_and_counts_its_attempts(link, start, tmp_path):
    """The cluster hears how many attempts there were, and nothing is tried again that is known."""
    _, first = start()
    RunDir(tmp_path / "run").remove_lock(1)
    for attempt in (1, 2):
        (tmp_path / "run" / "journal" / f"task-Acrobot-v1-a{attempt}.jsonl").write_text("")
    link.asked.clear()
    _, second = start("resume")
    assert second.run == first.run
    created = link.created[1]
    assert created["resume"]
    assert created["attempts"] == {"CartPole-v1": 0, "Acrobot-v1": 2, "CartPole-v1-2": 0}


@pytest.mark.parametrize("slots", [0, -1, True, "all", 1.5])
def test_slots_are_auto_or_a_count(slots):
    """Refused before anything is started."""
    with pytest.raises(
        ConfigError, match=f"slots must be 'auto', a whole number in 1..1000 or a list .*, got {slots!r}"
    ):
        Fleet(slots=slots)


def test_workers_belong_to_a_cluster_of_our_own():
    """Refused before anything is started."""
    with pytest.raises(ConfigError, match=r"n_workers must be a whole number in 1..256, got 0"):
        Fleet(n_workers=0)
    with pytest.raises(ConfigError, match="n_workers is for a cluster of our own"):
        Fleet("tcp://127.0.0.1:1", n_workers=2)


@pytest.mark.parametrize(
    ("client", "message"),
    [
        ("nowhere", "'nowhere' is no scheduler's address"),
        ("missing.json", "there is no scheduler file missing.json"),
        (42, "client must be a Client, a Cluster, an address or a scheduler file, got 42"),
    ],
)
def test_what_is_no_cluster_is_refused_at_once(client, message):
    """No time is spent on what cannot be an address."""
    with pytest.raises(ConfigError, match=message):
        connect(client)


@pytest.mark.parametrize("content", [b"{}", b"nothing", b'{"address": 5}', b"[1]", b"\xff\x00"])
def test_what_is_no_scheduler_file_is_refused_with_its_name(tmp_path, content):
    """Whatever else the file holds, and nothing is asked on the network."""
    (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"s\.json is no scheduler file: it must be JSON with the scheduler's address"
    ):
        connect(str(tmp_path / "s.json"))


@pytest.mark.cluster
def test_an_address_with_tls_needs_certificates():
    """The line says where they may be named."""
    with pytest.raises(
        ConfigError, match=r"tls://127\.0\.0\.1:1 speaks TLS, .* pass a Client .* distributed\.comm\.tls"
    ):
        connect("tls://127.0.0.1:1")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"planners": [None]}, "planners must be a mapping whose keys are words, got [None]"),
        ({"planners": {1: "last"}}, "planners must be a mapping whose keys are words, got {1: 'last'}"),
        ({"settings": b"x"}, "settings must be a mapping whose keys are words, got b'x'"),
        ({"settings": {None: 2}}, "settings must be a mapping whose keys are words, got {None: 2}"),
        ({"env_timeout_s": 1e-7}, "env_timeout_s must be a number of seconds from 0.001 to 1e7, or None, got 1e-07"),
        ({"env_timeout_s": True}, "env_timeout_s must be a number of seconds from 0.001 to 1e7, or None, got True"),
        ({"tasks": None}, "tasks must be drlnb.Task or environment ids, got None"),
        ({"tasks": b"A"}, "tasks must be drlnb.Task or environment ids, got b'A'"),
        ({"out": "a\0b"}, "a run directory must be a path without NUL, got 'a\\x00b'"),
        ({"out": 5}, "a run directory must be a path without NUL, got 5"),
        ({"out": "~'nobody/x"}, 'a run directory must be a path, got "~\'nobody/x": there is no such user'),
    ],
)
def test_values_of_a_wrong_kind_are_one_line(given, said):
    """With the argument, what it must be, and what was given."""

    def check(tasks="CartPole-v1", planners=None, out="runs/a", **others):
        return RunDir(out), run_spec(task_specs(tasks), chosen(planners), **others)

    with pytest.raises(ConfigError) as error:
        check(**given)
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("given", "name"),
    [({"env_kwargs": {"a": object()}}, "env_kwargs"), ({"env_kwargs": {"a": 2**70}}, "env_kwargs"),
     ({"learning_rate": 2**63}, "learning_rate")],
)  # fmt: skip
def test_what_no_message_can_hold_is_refused_by_name(given, name):
    """Objects, and whole numbers of more than 64 bits; the largest of 64 travels."""
    with pytest.raises(ConfigError, match=rf"^{name} must be words, numbers \(whole ones of 64 bits\), true or false"):
        Task("CartPole-v1", **given)
    assert Task("CartPole-v1", env_kwargs={"a": 2**63 - 1}).spec.env_kwargs == {"a": 2**63 - 1}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"leasing.hold": "last"}, "leasing.hold is a planner: planners={'hold': 'last'}"),
        ({"warmup.planner": "saa"}, "warmup.planner is a planner: planners={'warmup': 'saa'}"),
        ({"task.priority": 3}, "task.priority is a task's own: Task(..., priority=3)"),
        ({"leasing.ttl_s": 3}, "leasing.ttl_s belongs to the pool: fleet.set('leasing.ttl_s', 3)"),
        ({"warmup.rhoo": 3}, "unknown setting 'warmup.rhoo'; did you mean 'warmup.rho'?"),
        ({"warmup.rho": 0, "warmup.window": 1.5}, "rho must be a number from 1e-9 to 1e9, got 0"),
        ({"warmup.min_rounds": 20, "warmup.window": 16}, "min_rounds must be <= window and filter_window (16), got 20"),
        (
            {"batching.late": "drop", "batching.quorum": 0.5},
            "batching.late has no effect on a task with collectors: only",
        ),
        ({"slot.drain": "0/cpu0"}, "slot.drain belongs to the pool: fleet.set('slot.drain', '0/cpu0')"),
    ],
)
def test_settings_that_a_run_cannot_begin_with(settings, said):
    """Each in one line, with what to do; all of them are told."""
    with pytest.raises(ConfigError) as error:
        run_spec(task_specs(["CartPole-v1"]), chosen(), settings=settings)
    assert said in str(error.value)
    assert all(key.rpartition(".")[2] in str(error.value) for key in settings)


def test_settings_that_fit_together_are_taken_together():
    """None of them would be good beside the defaults of the others."""
    settings = {"warmup.min_rounds": 40, "warmup.filter_window": 40}
    spec = run_spec(task_specs(["CartPole-v1"]), chosen(), settings=settings)
    assert spec.settings["warmup"] == {"min_rounds": 40, "filter_window": 40}


def test_settings_reach_the_masters(link, tmp_path):
    """As the round machine's configuration."""
    link.spaces = {**link.spaces, "can_snapshot": True}
    given = {"warmup.collector_mode": "respawn", "warmup.rho": 2, "leasing.switch_limit_frac": 0.5}
    spec = run_spec(task_specs(["CartPole-v1"]), chosen("patent"), settings=given)
    launch(link, spec, tmp_path / "run")
    assert link.created[0]["planners"]["hold"] == "round"
    assert link.created[0]["planners"]["warmup"] == "patent"
    assert link.created[0]["settings"] == {
        "env_timeout_s": 60.0,
        "switch_limit_frac": 0.5,
        "warmup": {"collector_mode": "respawn", "rho": 2},
    }


def test_collectors_of_environments_without_snapshots_are_never_ended(link, tmp_path):
    """Refused with the reason before anything is made."""
    spec = run_spec(task_specs(["CartPole-v1"]), chosen(), settings={"warmup.collector_mode": "respawn"})
    with pytest.raises(ConfigError, match=r"task CartPole-v1: .*'respawn' needs environments that can be frozen"):
        launch(link, spec, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_was_changed_while_it_ran_is_there_again(link, start, tmp_path):
    """A resumed run begins with it, but for what is asked for anew; a new one knows nothing of it."""
    spec = run_spec(task_specs(["CartPole-v1"]), chosen(), settings={"warmup.rho": 2.0})
    launch(link, spec, tmp_path / "run")
    assert link.created[0]["scheduling"] == {}
    run = RunDir(tmp_path / "run")
    changes = {"warmup.rho": 7.0, "leasing.hold": "last", "task.priority": 3}
    run.write_status({"tasks": {"CartPole-v1": {"state": "stopped", "scheduling": changes}}})
    run.remove_lock(link.lock("r").epoch)
    launch(link, RunSpec.read(run), tmp_path / "run", "resume")
    assert link.created[1]["scheduling"] == {"CartPole-v1": changes}
    run.remove_lock(link.lock("r").epoch)
    asked = replace(spec, settings={"warmup": {"rho": 5.0}})
    launch(link, asked, tmp_path / "run", "resume")
    assert link.created[2]["scheduling"] == {"CartPole-v1": {"leasing.hold": "last", "task.priority": 3}}


def test_a_run_does_not_go_on_with_settings_that_do_not_fit_together(link, tmp_path):
    """What was changed while it trained is beside what is asked for anew; the way out is told, and it works."""
    spec = run_spec(task_specs(["CartPole-v1"]), chosen())
    launch(link, spec, tmp_path / "run")
    run = RunDir(tmp_path / "run")
    changes = {"warmup.min_rounds": 20, "warmup.rho": 2.0}
    run.write_status({"tasks": {"CartPole-v1": {"state": "stopped", "scheduling": changes}}})
    run.remove_lock(link.lock("r").epoch)
    asked = replace(spec, settings={"warmup": {"window": 16}})
    with pytest.raises(ConfigError) as error:
        launch(link, asked, tmp_path / "run", "resume")
    (problem,) = error.value.problems
    assert problem.startswith(
        "task CartPole-v1: warmup.min_rounds: min_rounds must be <= window and filter_window (16)"
    )
    assert problem.endswith("(changed while it trained; give warmup.min_rounds again in settings)")
    assert len(link.created) == 1
    asked = replace(spec, settings={"warmup": {"window": 16, "min_rounds": 9}})
    launch(link, asked, tmp_path / "run", "resume")
    assert link.created[1]["scheduling"] == {"CartPole-v1": {"warmup.rho": 2.0}}
