import threading
from types import SimpleNamespace

import pytest

from drlnb.records.errors import EnvError
from drlnb.widgets.faces import launcher
from tests.widgets.conftest import clicked, until


class FakeFleet:
    """A fleet that writes down what it is asked to train."""

    address = "tcp://nowhere:1"

    def __init__(self):
        self.slots = (SimpleNamespace(slot="0/cpu0"),)
        self.closed = False
        self.trainings = ()
        self.calls = []
        self.answer = None

    def train(self, tasks):
        self.calls.append((
            threading.current_thread().name,
            [(t.spec.env, t.spec.seed, t.spec.total_timesteps) for t in tasks],
        ))
        if isinstance(self.answer, Exception):
            raise self.answer
        self.trainings = (*self.trainings, self.answer)
        return self.answer

    def panel(self, **settings):
        return launcher(self, **settings)


@pytest.fixture
def fleet(run):
    made = FakeFleet()
    made.answer = run
    return made


def start_of(panel):
    return next(one for one in panel.facts()["buttons"] if one["name"] == "start")


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
        ("total_timesteps", "-5", "steps must be a whole number from 1 to 1,000,000,000,000, got '-5'"),
        ("total_timesteps", "0", "steps must be a whole number from 1 to"),
        ("total_timesteps", "many", "steps must be a whole number from 1 to"),
        ("total_timesteps", "9" * 5000, "steps must be a whole number from 1 to"),
        ("total_timesteps", "٣", "steps must be a whole number from 1 to"),
        ("slots", "3", "this fleet has 1; for 3: fleet.close(), then drlnb.Fleet(slots=3)"),
        ("slots", "one", "slots must be a whole number from 1 to 10,000, got 'one'"),
    ],
)  # fmt: skip
def test_start_is_off_with_the_reason_in_words(fleet, field, text, reason):
    """The sentence stands beside the form before anything is started; a click all the same is refused."""
    panel = launcher(fleet, env="CartPole-v1")
    assert (panel.reason, start_of(panel)["enabled"]) == ("", True)
    panel._fields[field].value = text
    assert panel.reason.startswith(reason)
    assert start_of(panel) | {"confirm": ""} == {
        "name": "start", "label": "Start", "enabled": False, "confirm": "", "reason": panel.reason,
    }  # fmt: skip
    assert panel.facts()["notes"] == [f"Start is off: {panel.reason}"]
    clicked(panel.shell.widget, "start")
    assert panel.shell.widget.comm.custom[-1]["kind"] == "failed"
    assert fleet.calls == []


def test_start_trains_what_the_form_says(fleet, run):
    """Off the callback's thread; then the panel shows the run's tasks, and its code starts the same."""
    panel = launcher(fleet, env="CartPole-v1", seeds="0-1")
    panel._fields["total_timesteps"].value = "20,000"
    clicked(panel.shell.widget, "start")
    until(lambda: panel.shell.widget.comm.custom[-1]["kind"] == "done")
    assert fleet.calls == [("drlnb-commands", [("CartPole-v1", 0, 20000), ("CartPole-v1", 1, 20000)])]
    assert panel.shell.widget.comm.custom[-1]["text"] == 'started; in Python: run = fleet.attach("r1")'
    assert panel.training is run
    assert panel.view().value("tasks") == 2


def test_tasks_that_train_already_are_shown(fleet, run):
    """The fleet gave the run that goes on: the answer says so."""
    fleet.trainings = (run,)
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
    assert panel.reason == "Tuple-v0: action space Tuple() is not supported"
    assert [m.text for m in panel.messages] == ["start: Tuple-v0: action space Tuple() is not supported"]
    panel._fields["env"].value = "Acrobot-v1"
    assert panel.reason == ""


def test_a_closed_fleet_starts_nothing(fleet):
    """The reason names the way out."""
    panel = launcher(fleet, env="CartPole-v1")
    fleet.closed = True
    assert panel.reason == "this fleet is closed; make a new one: drlnb.Fleet()"


def test_the_copied_lines_give_the_same_form_and_start_the_same(fleet):
    """Form and tasks survive the way through text."""
    panel = launcher(fleet)
    panel._fields["env"].value = "CartPole-v1"
    panel._fields["seeds"].value = "0, 3"
    panel._fields["total_timesteps"].value = "512"
    import drlnb

    exec(panel.code(), {"fleet": fleet, "drlnb": drlnb})
    assert fleet.calls[0][1] == [("CartPole-v1", 0, 512), ("CartPole-v1", 3, 512)]
    copied = fleet.panel(env="CartPole-v1", seeds="0, 3", total_timesteps="512")
    assert copied is not panel
    assert copied.form() == panel.form()


def test_code_with_a_mistake_in_it_is_not_copied(fleet):
    """The form is, the line that could not run is not."""
    panel = launcher(fleet, env="CartPole-v9")
    assert panel.code() == "fleet.panel(env='CartPole-v9')"


def test_fields_change_by_code(fleet):
    """The pump writes them."""
    panel = launcher(fleet)
    panel.set(env="Acrobot-v1")
    panel.refresh()
    assert panel.form().env == "Acrobot-v1"


def test_it_shows_the_newest_run_of_its_fleet(fleet, run):
    """A launcher that is opened late is not empty."""
    fleet.trainings = (run,)
    panel = launcher(fleet)
    assert panel.training is run
    assert panel.sentence() == "2 tasks: 2 queued"
