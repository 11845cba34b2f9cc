import threading
from types import SimpleNamespace

import pytest

from drlnb.fleet.follower import Follower
from drlnb.fleet.training import Training
from drlnb.records.errors import EnvError, PeerError
from drlnb.runtime.files.run_directory import RunDir
from drlnb.widgets.faces import launcher
from tests.widgets.conftest import clicked, shown, until


class FakeFleet:
    """A fleet that writes down what it is asked to train."""

    address = "tcp://nowhere:1"

    def __init__(self):
        self.slots = (SimpleNamespace(slot="0/cpu0"),)
        self.pool = SimpleNamespace(n_devices=1, said=())
        self.closed = False
        self.trainings = []
        self.calls = []
        self.answer = None
        self.elsewhere = []

    def train(self, tasks):
        self.calls.append((
            threading.current_thread().name,
            [(t.spec.env, t.spec.seed, t.spec.total_timesteps) for t in tasks],
        ))
        if isinstance(self.answer, Exception):
            raise self.answer
        self.trainings.append(self.answer)
        return self.answer

    def runs(self):
        return self.elsewhere

    def panel(self, **settings):
        return launcher(self, **settings)


@pytest.fixture
def fleet(run):
    made = FakeFleet()
    made.answer = run
    return made


def start_of(panel):
    return next(one for one in panel.content.facts()["buttons"] if one["name"] == "start")


@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        ("env", "", "choose an environment, as CartPole-v1"),
        ("env", "CartPole-v9", "unknown environment 'CartPole-v9'; did you mean CartPole-v1 or"),
        ("env", "<img src=x onerror=alert(1)>", "environment '<img src=x onerror=alert(1)>' cannot be made"),
        ("seeds", "", "seeds are missing: write 0, or 0-4 for five tasks"),
        ("seeds", "-1", "seeds must be whole numbers >= 0, as 0 or 0-4 or 0, 3, got '-1'"),
        ("seeds", "4-1", "seeds must go up, to at most 4294967295, got '4-1'"),
        ("seeds", "0-99999999999", "seeds must go up"),
        ("seeds", "0-1000", "at most 32 seeds at once, got '0-1000'"),
        ("total_timesteps", "-5", "steps must be a whole number in 1..1000000000000, got '-5'"),
        ("total_timesteps", "0", "steps must be a whole number in 1..1000000000000, got"),
        ("total_timesteps", "many", "steps must be a whole number in 1..1000000000000, got"),
        ("total_timesteps", "9" * 900, "steps must be a whole number in 1..1000000000000, got"),
        ("slots", "3", "this fleet has 1; for 3: fleet.close(), then drlnb.Fleet(slots=3)"),
        ("slots", "one", "slots must be a whole number in 1..10000, got 'one'"),
    ],
)  # fmt: skip
def test_start_is_off_with_the_reason_in_words(fleet, field, text, reason):
    """The sentence stands beside the form before anything is started; a click all the same is refused."""
    panel = launcher(fleet, env="CartPole-v1")
    assert (panel.content.reason, start_of(panel)["enabled"]) == ("", True)
    panel.fields[field].field.value = text
    assert panel.content.reason.startswith(reason)
    assert start_of(panel) | {"confirm": ""} == {
        "name": "start", "label": "Start", "enabled": False, "confirm": "", "reason": panel.content.reason,
    }  # fmt: skip
    assert panel.content.facts()["notes"] == [f"Start is off: {panel.content.reason}"]
    clicked(panel.shell.widget, "start")
    assert panel.shell.widget.comm.custom[-1]["kind"] == "failed"
    assert fleet.calls == []


def test_slots_of_the_form_are_devices_and_not_seats(fleet):
    """One device with three seats lists three slots; what the field counts is the device, as `Fleet(slots=1)` does."""
    fleet.slots = tuple(SimpleNamespace(slot=f"0/cpu0/{seat}") for seat in range(3))
    panel = launcher(fleet, env="CartPole-v1", slots="1")
    assert (panel.fields["slots"].field.placeholder, panel.content.reason) == ("1", "")
    panel.fields["slots"].field.value = "3"
    assert panel.content.reason == "this fleet has 1; for 3: fleet.close(), then drlnb.Fleet(slots=3)"


def test_start_trains_what_the_form_says(fleet, run):
    """Off the callback's thread; then the panel shows the run's tasks, and its code starts the same."""
    panel = launcher(fleet, env="CartPole-v1", seeds="0-1")
    panel.fields["total_timesteps"].field.value = "20,000"
    clicked(panel.shell.widget, "start")
    until(lambda: panel.shell.widget.comm.custom[-1]["kind"] == "done")
    assert fleet.calls == [("drlnb-commands", [("CartPole-v1", 0, 20000), ("CartPole-v1", 1, 20000)])]
    assert panel.shell.widget.comm.custom[-1]["text"] == 'started; in Python: run = fleet.attach("r1")'
    assert panel.training is run
    assert panel.view().value("tasks") == 2


def test_tasks_that_train_already_are_shown(fleet, run):
    """The fleet gave the run that goes on: the answer says so."""
    fleet.trainings = [run]
    panel = launcher(fleet, env="CartPole-v1")
    clicked(panel.shell.widget, "start")
    until(lambda: panel.shell.widget.comm.custom[-1]["kind"] == "done")
    assert panel.shell.widget.comm.custom[-1]["text"].startswith("these tasks train already; in Python: run = ")


def test_start_is_off_while_it_starts(fleet):
    """A second click meanwhile starts nothing."""
    gate = threading.Event()
    train = fleet.train
    fleet.train = lambda tasks: gate.wait(5) and train(tasks)
    panel = launcher(fleet, env="CartPole-v1")
    clicked(panel.shell.widget, "start", ident="1")
    clicked(panel.shell.widget, "start", ident="2")
    assert panel.shell.widget.comm.custom[-1] == {"kind": "failed", "id": "2", "text": "start: starting"}
    gate.set()
    until(lambda: panel.training is not None)
    assert len(fleet.calls) == 1


def test_an_environment_that_cannot_be_trained_on_is_remembered(fleet):
    """The cluster's own words stand beside the form until another environment is typed."""
    fleet.answer = EnvError("Tuple-v0: action space Tuple() is not supported")
    panel = launcher(fleet, env="CartPole-v1")
    clicked(panel.shell.widget, "start")
    until(lambda: panel.shell.widget.comm.custom[-1]["kind"] == "failed")
    assert panel.content.reason == "Tuple-v0: action space Tuple() is not supported"
    assert [m.text for m in panel.messages] == ["start: Tuple-v0: action space Tuple() is not supported"]
    panel.fields["env"].field.value = "Acrobot-v1"
    assert panel.content.reason == ""


def test_a_cluster_that_does_not_answer_keeps_start_on(fleet):
    """Nothing is wrong with the form: it is told, and may be tried again as it is."""
    fleet.answer = PeerError("scheduler", "is gone")
    panel = launcher(fleet, env="CartPole-v1")
    clicked(panel.shell.widget, "start")
    until(lambda: panel.shell.widget.comm.custom[-1]["kind"] == "failed")
    assert [m.text for m in panel.messages] == ["start: scheduler: is gone"]
    assert panel.content.reason == ""


def test_it_follows_a_run_that_was_started_in_code(fleet, run):
    """The newest is shown by itself; an older one can be chosen again."""
    panel = launcher(fleet)
    assert (panel.training, panel.view().sentence) == (None, "no tasks yet")
    older = SimpleNamespace(id="r0", specs={"x": None}, ended=True)
    fleet.trainings = (run,)
    panel.refresh()
    assert panel.training is run
    assert panel.view().sentence == "2 tasks: 2 queued"
    assert (panel.fields["run"].field.options, panel.fields["run"].field.value) == ((("r1, 2 tasks", "r1"),), "r1")
    fleet.trainings = (older, run)
    fleet.attach = {"r0": run, "r1": run}.__getitem__
    panel.refresh()
    assert panel.fields["run"].field.options == (("r1, 2 tasks", "r1"), ("r0, 1 task", "r0"))
    assert panel.fields["run"].field.value == "r1"
    assert "snapshot" in [one["kind"] for one in panel.shell.widget.comm.custom[-2:]]


@pytest.fixture
def second(link, specs, tmp_path):
    """Return another run on the same cluster."""
    link.known = [*link.known, {"run": "r2", "state": "running", "tasks": {}}]
    folder = RunDir(tmp_path / "second")
    folder.create({"run": "r2", "tasks": [spec.to_plain() for spec in specs]})
    made = Training(Follower(link, "r2", specs, folder))
    yield made
    made.close()


def test_a_second_start_hides_nothing_and_stop_all_means_all(fleet, run, second, link):
    """The first run stands below the new one as long as this panel lives; what trains can be stopped at once."""
    panel = launcher(fleet)
    fleet.trainings = (run,)
    panel.refresh()
    own = panel.box.children
    fleet.trainings = (run, second)
    for _ in range(2):
        panel.refresh()
    assert panel.training is second
    (below,) = panel.content.below
    assert panel.box.children == (*own, below.box)
    assert below.training is run
    assert "run r1" in below.content.facts()["notes"]
    assert panel.still().count("2 tasks: 2 queued") >= 2, "the notebook's file has both"
    stop = next(one for one in panel.content.facts()["buttons"] if one["name"] == "stop")
    assert (stop["enabled"], stop["confirm"]) == (True, "Stop 4 tasks?")
    clicked(panel.shell.widget, "stop")
    until(lambda: len(link.asked) == 2)
    assert link.asked == [("stop", None)] * 2
    panel.close()
    assert below.closed


def test_a_run_that_others_started_can_be_chosen(fleet, run):
    """The cluster is asked by a thread, seldom, and only while somebody looks; choosing attaches."""
    fleet.elsewhere = [{"run": "r1", "tasks": {"a": {}, "b": {}}}]
    attached = []
    fleet.attach = lambda run_id: attached.append((threading.current_thread().name, run_id)) or run
    panel = launcher(fleet)
    panel.refresh()
    assert panel.fields["run"].field.options == (("none yet", ""),)
    shown(panel.shell.widget)
    panel.refresh()
    until(lambda: panel.content.choice.known == {"r1": 2})
    panel.refresh()
    assert panel.fields["run"].field.options == (("r1, 2 tasks", "r1"),)
    panel.fields["run"].field.value = None
    panel.fields["run"].field.value = "r1"
    until(lambda: panel.training is run)
    assert attached == [("drlnb-commands", "r1")]


def test_what_the_pool_says_is_a_note(fleet):
    """No CUDA device is no warning."""
    fleet.pool.said = ("no CUDA device (none here): training on 2 virtual CPU slots",)
    panel = launcher(fleet, env="CartPole-v1")
    assert panel.content.facts()["notes"] == list(fleet.pool.said)
    assert list(panel.messages) == []


def test_no_label_is_cut(fleet, run):
    """Each is as wide as its word."""
    panel = launcher(fleet)
    fields = [
        *(panel.fields[name].box for name in panel.content.CHECKS),
        panel.content.choice.box,
        *run.panel("leasing").controls[0].children,
    ]
    assert {field.style.description_width for field in fields} == {"initial"}


def test_a_closed_fleet_starts_nothing(fleet):
    """The reason names the way out."""
    panel = launcher(fleet, env="CartPole-v1")
    fleet.closed = True
    assert panel.content.reason == "this fleet is closed; make a new one: drlnb.Fleet()"


def test_the_copied_lines_give_the_same_form_and_start_the_same(fleet):
    """Form and tasks survive the way through text."""
    panel = launcher(fleet)
    panel.fields["env"].field.value = "CartPole-v1"
    panel.fields["seeds"].field.value = "0, 3"
    panel.fields["total_timesteps"].field.value = "512"
    import drlnb

    exec(panel.code(), {"fleet": fleet, "drlnb": drlnb})
    assert fleet.calls[0][1] == [("CartPole-v1", 0, 512), ("CartPole-v1", 3, 512)]
    copied = fleet.panel(env="CartPole-v1", seeds="0, 3", total_timesteps="512")
    assert copied is not panel
    assert copied.content.form.read() == panel.content.form.read()


def test_code_with_a_mistake_in_it_is_not_copied(fleet):
    """The form is, the line that could not run is not."""
    panel = launcher(fleet, env="CartPole-v9")
    assert panel.code() == "fleet.panel(env='CartPole-v9')"


def test_fields_change_by_code(fleet):
    """The pump writes them."""
    panel = launcher(fleet)
    panel.set(env="Acrobot-v1")
    panel.refresh()
    assert panel.content.form.read().env == "Acrobot-v1"


def test_it_shows_the_newest_run_of_its_fleet(fleet, run):
    """A launcher that is opened late is not empty."""
    fleet.trainings = (run,)
    panel = launcher(fleet)
    assert panel.training is run
    assert panel.view().sentence == "2 tasks: 2 queued"
