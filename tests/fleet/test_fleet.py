"""What a cell that is run twice does, and what a run can be asked from elsewhere."""

import asyncio
import dataclasses
import re
import sys
from types import SimpleNamespace

import pytest

from drlnb.fleet import faces
from drlnb.fleet import fleet as fleets
from drlnb.fleet.cluster import pool as module
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.follower import Follower
from drlnb.fleet.rows.tables import table_rows
from drlnb.fleet.tasks.launch_form import LaunchForm, known_envs
from drlnb.fleet.tasks.planners import CHOICES, chosen
from drlnb.fleet.tasks.task import Task
from drlnb.fleet.training import Training
from drlnb.records.columns.leasing import GradientsRestored, LeaseExpired, LeaseGranted, LeaseReleased, LeaseReturned
from drlnb.records.common import ClockRelated
from drlnb.records.errors import ConfigError, MissingExtra
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.records.round import ExperienceArrived, GradientComputed, LeaseReceived, MetricsRecorded
from drlnb.runtime.files.run_directory import RunDir
from tests.fleet.conftest import FakeLink, ended
from tests.widgets.conftest import until


class Handle:
    """A cluster of our own that is not there."""

    address, pid = "tcp://nowhere:1", 1

    def stop(self):
        pass


class SettingLink(FakeLink):
    named = ()
    refuses = frozenset()

    def open_pool(self, n_slots, seats=1, names=(), isolation="shared", own_workers=None):
        self.named, n_devices = tuple(names), n_slots or len(names) or 2
        n_here = seats
        slots = ("s",) * (n_devices * n_here)
        return SimpleNamespace(
            slots=slots, n_nodes=1, notices=(), n_devices=n_devices, seats=seats, names=tuple(names),
            isolation=isolation,
        )  # fmt: skip

    def same_devices(self, names):
        if "cpu:9" in names:
            raise ConfigError("no device cpu:9: this cluster has cpu:0, cpu:1")
        return set(names) == set(self.named)

    def set(self, run_id, key, value, *, task=None):
        self.asked.append(("set", key, value, task))

    def check(self, run_id, key, value, *, task=None):
        self.asked.append(("check", key, value, task))
        if (key, run_id) in self.refuses:
            raise ConfigError(f"{key} cannot be {value}")

    def set_pool(self, key, value):
        self.asked.append(("pool", key, value))


@pytest.fixture
def link():
    made = SettingLink()
    made.known = []
    return made


@pytest.fixture
def own(link, monkeypatch, tmp_path):
    """Fleets of a notebook, on clusters that are not there."""
    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr(
        module, "start_cluster", lambda n_workers: (started.append(n_workers) or Handle(), tmp_path / "x")
    )
    monkeypatch.setattr(module, "connect", lambda *args, **kwargs: link)
    monkeypatch.setattr(module, "current_client", lambda: None)
    monkeypatch.setattr(faces, "kernel", lambda: "k")
    yield started
    for fleet in list(fleets._own.values()):
        link.pages.put(([ended(name) for t in fleet.trainings for name in t.specs], False))
        fleet.close(timeout_s=0.1)


def task(seed=0):
    return Task("CartPole-v1", total_timesteps=100, seed=seed)


def test_a_cell_that_makes_a_fleet_may_be_run_twice(own, capsys):
    """The fleet that is up is used, and one line says so."""
    fleet = Fleet(slots=1)
    again = Fleet(slots=1)
    assert again is fleet
    assert len(own) == 1
    assert capsys.readouterr().out == "drlnb: using the fleet that is up already (1 slots at tcp://nowhere:1)\n"


def test_an_idle_fleet_of_another_size_is_replaced(own):
    """The cell with another number gives another fleet; the old one is closed."""
    fleet = Fleet(slots=1)
    other = Fleet(slots=3)
    assert (fleet.closed, len(other.slots), len(own)) == (True, 3, 2)


def test_a_fleet_that_trains_is_not_replaced(own):
    """The sentence says what to do first."""
    fleet = Fleet(slots=1)
    fleet.train([task()])
    with pytest.raises(ConfigError, match=r"a fleet with 1 slots is training in this notebook; close it first"):
        Fleet(slots=3)


def test_a_fleet_of_named_devices_is_used_again(own):
    """The same devices in any order are the same fleet, and what a run remembers; others are another fleet."""
    fleet = Fleet(slots=["cpu:0", "cpu:1"])
    assert Fleet(slots=["cpu:1", "cpu:0"]) is fleet
    assert Fleet() is fleet
    assert fleet.pool.shape["slots"] == ["cpu:0", "cpu:1"]
    other = Fleet(slots=["cpu:1"])
    assert (fleet.closed, other.pool.n_devices) == (True, 1)


def test_a_fleet_of_isolated_tasks_is_used_again(own):
    """Who names no isolation takes it as it is; another one is another fleet; a run remembers it."""
    fleet = Fleet(slots=1, isolation="process")
    assert (Fleet(slots=1), Fleet(isolation="process")) == (fleet, fleet)
    assert (fleet.pool.isolation, fleet.pool.shape["isolation"]) == ("process", "process")
    fleet.close()
    plain = Fleet(slots=1)
    assert "isolation" not in plain.pool.shape
    assert Fleet(isolation="process") is not plain


def test_wrong_devices_close_no_fleet(own):
    """A list that is wrong, or names what is not there, is refused while the idle fleet stays as it is."""
    fleet = Fleet(slots=1)
    for slots, line in (
        ([], "slots is an empty list"),
        (["cpu:0", "cuda:0"], "slots mixes"),
        (["cpu:9"], "no device cpu:9: this cluster has cpu:0, cpu:1"),
        (0, "slots must be"),
    ):
        with pytest.raises(ConfigError, match=line):
            Fleet(slots=slots)
    assert (fleet.closed, len(own)) == (False, 1)
    assert Fleet(slots=1) is fleet


def test_in_a_script_every_fleet_is_a_new_one(own, monkeypatch):
    """Only cells are run twice."""
    monkeypatch.setattr(faces, "kernel", lambda: None)
    first, second = Fleet(slots=1), Fleet(slots=1)
    assert first is not second
    first.close()
    second.close()


def test_a_cell_that_trains_may_be_run_twice(own, capsys):
    """The same tasks give the run that goes on; other tasks are another run."""
    fleet = Fleet(slots=1)
    run = fleet.train([task(0), task(1)])
    assert fleet.train([task(0), task(1)]) is run
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"drlnb: <Training {run.id} running: ")
    assert said.endswith("goes on at tcp://nowhere:1: attached (run.stop() ends it)")
    assert fleet.train([task(2)]) is not run
    assert fleet.train([task(0), task(1)], planners={"hold": "last"}) is not run
    assert len(fleet.trainings) == 3


def test_in_a_script_the_same_tasks_are_trained_again(own, monkeypatch):
    """A loop over runs means what it says."""
    fleet = Fleet(slots=1)
    monkeypatch.setattr(faces, "kernel", lambda: None)
    assert fleet.train([task()], out="a") is not fleet.train([task()], out="b")


def test_attaching_gives_a_guest_that_writes_no_metrics(own, link, specs, tmp_path):
    """Its own fleet gives the run itself; another one a second handle."""
    fleet = Fleet(slots=1)
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": [spec.to_plain() for spec in specs], "planners": {"hold": "last"}})
    link.known = [{"run": "r1", "out": str(folder.path), "state": "running", "tasks": {}}]
    run = fleet.attach("r1")
    assert (list(run.specs), run.planners) == (["a", "b"], {"hold": "last"})
    assert fleet.attach("r1") is run
    run.pause("a")
    assert link.asked[-1] == ("pause", "a")
    with pytest.raises(ConfigError, match="tcp://nowhere:1 has no run 'r9'; it has r1"):
        fleet.attach("r9")


def test_a_run_on_another_machines_disk_is_refused_in_words(own, link, tmp_path):
    """The sentence names the folder, the cluster and what to do."""
    out = tmp_path / "elsewhere"
    link.known = [{"run": "r1", "out": str(out), "state": "running", "tasks": {}}]
    with pytest.raises(ConfigError) as error:
        Fleet(slots=1).attach("r1")
    assert str(error.value) == (
        f"run r1 cannot be watched from here: {out} holds no run of drlnb (no run.json); its cluster is at "
        "tcp://nowhere:1, attach on a machine that shares the run directory"
    )


def test_what_the_pool_says_is_red_in_no_cell(own, link, monkeypatch, capsys, caplog):
    """A fleet without CUDA is logged in a notebook, whose panels show it, and one plain line elsewhere."""
    said = "no CUDA device (none here): training on 2 virtual CPU slots"
    pool = SimpleNamespace(slots=("s",), n_nodes=1, notices=(said,), n_devices=1, seats=1, names=(), isolation="shared")
    monkeypatch.setattr(link, "open_pool", lambda *a, **k: pool)
    with caplog.at_level("INFO", "drlnb"):
        assert Fleet().notices == (said,)
    assert ([record.getMessage() for record in caplog.records], capsys.readouterr()) == ([said], ("", ""))
    monkeypatch.setattr(faces, "kernel", lambda: None)
    Fleet().close()
    assert capsys.readouterr() == ("", f"drlnb: {said}\n")


def test_an_interrupted_cell_ends_its_waiting_and_not_the_run(run, monkeypatch, capsys):
    """One line says that the run goes on and what stops it, for `wait` and for `await`."""
    monkeypatch.setattr(faces, "kernel", lambda: "k")
    line = "drlnb: interrupted: this cell waits no more, run r1 goes on (run.stop() ends it)\n"
    monkeypatch.setattr(run.watch._ended, "wait", lambda timeout: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    assert capsys.readouterr().out == line

    async def cell():
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
        await run

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cell())
    assert capsys.readouterr().out == line
    assert (run.ended, run.status) == (False, "running")


def test_a_guest_leaves_the_metrics_to_the_owner(link, specs, tmp_path):
    """Two notebooks do not write one file."""
    from tests.fleet.conftest import finished, opened

    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": []})
    guest = Training(Follower(link, "r1", specs, folder, guest=True))
    link.say(opened("a"), finished("a", 1), ended("a"), ended("b"), gap=True)
    assert guest.watch.settle(5)
    assert list(folder.metrics.iterdir()) == []
    guest.close()


@pytest.fixture
def run(link, specs, tmp_path):
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": []})
    link.known = [{"run": "r1", "state": "running", "tasks": {}}]
    made = Training(Follower(link, "r1", specs, folder))
    yield made
    made.close()


def test_a_setting_is_changed_for_one_task_or_all(run, link):
    """The link hears of it once, of plain data."""
    run.set("leasing.hold", "last")
    run.set("leasing.hold", "round", task="b")
    run.set("rl.learning_rate", lambda progress: 0.5, task="a")
    run.set("rl.n_epochs", 3.0)
    run.set("warmup.rho", 3)
    run.set("task.priority", 2, task="a")
    run.set("leasing.ttl_s", 20.0)
    assert link.asked == [
        ("set", "leasing.hold", "last", None),
        ("set", "leasing.hold", "round", "b"),
        ("set", "rl.learning_rate", {"points": [[0.0, 0.5], [1.0, 0.5]]}, "a"),
        ("set", "rl.n_epochs", 3, None),
        ("set", "warmup.rho", 3, None),
        ("set", "task.priority", 2, "a"),
        ("set", "leasing.ttl_s", 20.0, None),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("warmup.rhoo", 3), r"unknown setting 'warmup.rhoo'; did you mean 'warmup.rho'\?"),
        (("warmup.lead", -1), "unknown setting 'warmup.lead'; did you mean 'warmup.planner' or 'warmup.kappa' or"),
        (("leasing.ttl_s", {1, 2}), r"leasing.ttl_s must be words, numbers .*, got \{1, 2\}"),
        (("leasing.ttl_s", 12, "a"), "leasing.ttl_s belongs to the pool, not to a task: leave task out"),
        (("learning_rate", 3), r"unknown setting 'learning_rate'; did you mean 'rl.learning_rate'\?"),
        (("rl.ent_coef", -1), "rl.ent_coef must be a number >= 0, got -1"),
        (("rl.gama", 1), "unknown setting 'rl.gama'; did you mean 'rl.gamma'"),
        (("rl.gamma", 0.5), r"rl.gamma cannot change in a running task \(a\); .* rl.clip_range, rl.ent_coef"),
        (("leasing.hold", "last", "c"), "this run has no task 'c'; it has a, b"),
    ],
)
def test_a_wrong_setting_is_refused_in_words(run, link, arguments, said):
    """Nothing is sent."""
    with pytest.raises(ConfigError, match=said):
        run.set(*arguments)
    assert link.asked == []


def test_a_fleet_asks_for_all_its_runs_before_one_is_told(own, link, specs, tmp_path):
    """One that cannot have the value keeps the others from it; a setting of the pool goes to the pool."""
    fleet = Fleet()
    for name in ("r1", "r2"):
        folder = RunDir(tmp_path / name)
        folder.create({"run": name, "tasks": []})
        fleet.trainings.append(Training(Follower(link, name, specs, folder)))
    link.known = [{"run": name, "state": "running", "tasks": {}} for name in ("r1", "r2")]
    link.asked.clear()
    link.refuses = {("warmup.rho", "r2")}
    with pytest.raises(ConfigError, match=r"warmup.rho cannot be 2"):
        fleet.set("warmup.rho", 2.0)
    assert link.asked == [("check", "warmup.rho", 2.0, None)] * 2
    link.asked.clear()
    fleet.set("warmup.kappa", 2.0, task="a")
    assert [word[0] for word in link.asked] == ["check", "check", "set", "set"]
    link.asked.clear()
    fleet.set("leasing.ttl_s", 5.0)
    fleet.set("slot.drain", "n0/gpu1")
    assert link.asked == [("pool", "leasing.ttl_s", 5.0), ("pool", "slot.drain", "n0/gpu1")]
    for training in fleet.trainings:
        training.close()


def test_a_fleet_without_tasks_knows_a_wrong_key(own):
    """The nearest ones are told, not that nothing trains."""
    fleet = Fleet()
    with pytest.raises(ConfigError, match=r"unknown setting 'warmup.lead'; did you mean"):
        fleet.set("warmup.lead", -1)
    with pytest.raises(ConfigError, match=r"warmup.rho cannot be changed: no task trains on this fleet"):
        fleet.set("warmup.rho", 1.0)
    with pytest.raises(ConfigError, match=r"slot.drain belongs to the pool, not to a task: leave task out"):
        fleet.set("slot.drain", "n0/gpu1", task="a")


def test_nothing_can_be_changed_in_a_run_that_has_ended(run, link):
    """The sentence says how it ended."""
    link.say(ended("a"), ended("b"))
    run.watch.settle(5)
    with pytest.raises(ConfigError, match="run r1 is done: nothing is left to change"):
        run.set("leasing.hold", "last")


def test_nothing_can_be_changed_in_a_task_that_has_ended(run, link):
    """The others go on, and a wish for all means those."""
    link.say(ended("a"))
    until(lambda: run.tasks["a"].state == "done")
    with pytest.raises(ConfigError, match="task a is done: nothing is left to change"):
        run.set("rl.ent_coef", 0.5, task="a")
    run.set("rl.ent_coef", 0.5)
    assert link.asked == [("set", "rl.ent_coef", 0.5, None)]


def test_a_wish_for_tasks_of_which_one_cannot_is_refused_whole(link, specs, tmp_path):
    """Its algorithm and what it can change are named; the other task hears nothing."""
    folder = RunDir(tmp_path / "mixed")
    folder.create({"run": "r1", "tasks": []})
    run = Training(Follower(link, "r1", (specs[0], dataclasses.replace(specs[1], algo="dqn")), folder))
    try:
        with pytest.raises(ConfigError, match=r"'rl.ent_coef'.*while dqn trains these can change: rl.learning_rate, r"):
            run.set("rl.ent_coef", 0.5)
    finally:
        run.close()
    assert link.asked == []


def test_every_choice_of_a_setting_is_a_planner():
    """The panel's list and the planners agree, in both directions."""
    assert [chosen({"hold": name}).names["hold"] for name in CHOICES["leasing.hold"]] == list(CHOICES["leasing.hold"])
    with pytest.raises(ConfigError) as error:
        chosen({"hold": "?"})
    listed = str(error.value).partition("one of ")[2].partition(", got")[0].split(", ")
    assert sorted(listed) == sorted(CHOICES["leasing.hold"])


def stream(name, machine, *records):
    opened = StreamOpened(stream=name, machine=machine, config={}, origin="measured", version="1")
    return name, Stream(header=opened, records=records, torn=False, source=name)


@pytest.fixture
def journal():
    fence, late = Fence(epoch=7, token=1), Fence(epoch=7, token=2)
    granted = {"request_id": "r", "task": "r1/a", "attempt": 1, "round": 4, "slots": ("0/cpu0",)}
    pool = stream(
        "broker-e7", "pool",
        LeaseReturned(t=1.0, fence=fence, clean=True, computed_s=(0.0,)),
        LeaseGranted(fence=fence, waited_s=0.5, **granted),
        LeaseGranted(fence=late, waited_s=0.0, resident=True, **granted),
        LeaseReturned(t=3.0, fence=fence, clean=True, computed_s=(1.5,)),
        LeaseReleased(fence=fence, task="r1/a", slots=("0/cpu0",), held_s=2.0, computed_s=(1.5,), reason="done"),
        LeaseExpired(fence=late, task="r1/a", slots=("0/cpu0",), held_s=9.0, silent_s=8.0),
    )  # fmt: skip
    task = stream(
        "task-a-a1", "round",
        ExperienceArrived(
            t=1.0, collector=1, round=4, attempt=1, version=1, n_samples=8, n_bytes=9, key="k", collect_s=0.1,
            episodes=((9.0, 9), (3.0, 3)),
        ),
        ClockRelated(t=1.0, clock="broker-e7", offset_s=-0.5, error_s=0.0),
        LeaseReceived(t=1.5, request_id="r", fence=fence, slots=("0/cpu0",), waited_s=0.5),
        GradientsRestored(t=1.6, round=4, fence=fence, elapsed_s=0.1, moved_bytes=70),
        GradientComputed(t=1.7, collector=1, round=4, fence=fence, slot="0/cpu0", elapsed_s=0.1, moved_bytes=5),
        MetricsRecorded(round=4, n_timesteps=64, metrics={"round/time_s": 2.5, "train/loss": 0.25}),
    )  # fmt: skip
    return Journal(streams=dict([pool, task]))


def test_tables_of_a_journal(journal):
    """One row per round, ended lease and episode; seconds are those since the first event, at 0.5 s."""
    first = {"task": "a", "attempt": 1, "round": 4, "n_timesteps": 64}
    assert table_rows(journal, "metrics") == [first | {"round/time_s": 2.5, "train/loss": 0.25}]
    assert table_rows(journal, "rounds") == [first | {"time_s": 2.5}]
    leases = table_rows(journal, "leases")
    keys = ("task", "fence", "granted_s", "ended_s", "held_s", "computed_s", "reason", "waited_s")
    assert [tuple(row[key] for key in keys) for row in leases] == [
        ("a", "7/1", 0.5, 2.5, 2.0, 1.5, "done", 0.5),
        ("a", "7/2", 0.5, 2.5, 9.0, None, "expired", 0.0),
    ]
    assert [(row["resident"], row["moved_bytes"]) for row in leases] == [(False, 75), (True, None)]
    assert [(row["return"], row["length"], row["collector"]) for row in table_rows(journal, "episodes")] == [
        (9.0, 9, 1),
        (3.0, 3, 1),
    ]
    known = "metrics, rounds, leases, pool, episodes, placement, swapping, batching, shares"
    with pytest.raises(ConfigError, match=f"table must be one of {known}, got 'metric'"):
        table_rows(journal, "metric")


def test_a_frame_is_made_by_pandas(run, journal, monkeypatch):
    """Its rows are those of the table."""
    monkeypatch.setitem(vars(run), "journal", lambda: journal)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=tuple))
    assert run.frame("rounds") == ({"task": "a", "attempt": 1, "round": 4, "n_timesteps": 64, "time_s": 2.5},)


def test_without_pandas_the_pip_line_is_told(run, journal, monkeypatch):
    """It is no base dependency."""
    monkeypatch.setitem(vars(run), "journal", lambda: journal)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"frame\(\) needs pandas; install it with: pip install pandas"):
        run.frame()


def test_a_form_gives_tasks_and_the_line_that_makes_the_same():
    """One task per seed; empty steps mean the tuned budget."""
    form = LaunchForm(env=" CartPole-v1 ", seeds="0-1", total_timesteps="1_000")
    assert form.problems(n_slots=2) == {}
    assert [(t.spec.seed, t.spec.total_timesteps, t.spec.group) for t in form.tasks()] == [
        (0, 1000, "CartPole-v1"),
        (1, 1000, "CartPole-v1"),
    ]
    assert LaunchForm(env="CartPole-v1").tasks()[0].spec.total_timesteps == Task("CartPole-v1").spec.total_timesteps
    made = eval(form.code().removeprefix("run = fleet.train(").removesuffix(")"), {"drlnb": SimpleNamespace(Task=Task)})
    assert [t.spec for t in made] == [t.spec for t in form.tasks()]
    assert form.settings() == {"env": " CartPole-v1 ", "seeds": "0-1", "total_timesteps": "1_000"}


def test_a_form_knows_environments_and_leaves_modules_alone():
    """A module is imported when the environment is tried, not while somebody types."""
    assert "CartPole-v1" in known_envs()
    assert LaunchForm(env="drlnb_nowhere.deep:Thing-v0").problems(1) == {}
    (said,) = LaunchForm(env="CartPole-v1", algo="sac").problems(1).values()
    assert re.fullmatch(r"algorithm must be one of ppo(, \w+)*, got 'sac'", said)


def test_a_report_is_made_of_the_directory_or_of_what_was_streamed(run, monkeypatch):
    """Options are handed on; a journal on another machine's disk is no obstacle."""
    calls = []
    monkeypatch.setattr(faces, "face", lambda name: lambda *args, **options: calls.append((name, *args, options)))
    monkeypatch.setitem(vars(run), "journal", lambda: "streamed")
    run.report("x.html", notes="mine")
    (run.out / "journal" / "task-a-a1.jsonl").write_text("", encoding="utf-8")
    run.report("y.html")
    assert calls == [("report", "streamed", "x.html", {"notes": "mine"}), ("report", run.out, "y.html", {})]


def test_a_panel_is_asked_of_its_face(run, monkeypatch):
    """Name and settings are handed on."""
    monkeypatch.setattr(faces, "face", lambda name: lambda *args, **settings: (name, *args, settings))
    assert run.panel("leasing", window_s=3) == ("panel", run, "leasing", {"window_s": 3})
