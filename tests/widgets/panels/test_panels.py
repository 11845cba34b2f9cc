import asyncio
import json
import logging
import os
import threading
import time
from types import SimpleNamespace

import ipywidgets
import pytest
from ipywidgets.widgets import widget as ipywidgets_widget

from drlnb.fleet import faces, follower
from drlnb.records.errors import PeerError
from drlnb.widgets.panels.frame import Content
from drlnb.widgets.transport.live import live
from tests.fleet.conftest import ended, finished, header, opened, row
from tests.widgets.conftest import clicked, said, shown, until


@pytest.fixture
def kernel(monkeypatch):
    """Give a kernel whose loop a test runs by hand."""
    loop = asyncio.new_event_loop()
    published = []
    shell = SimpleNamespace(display_pub=SimpleNamespace(publish=published.append))
    made = SimpleNamespace(io_loop=SimpleNamespace(asyncio_loop=loop), shell=shell, published=published)
    monkeypatch.setattr(faces, "kernel", lambda: made)

    def turn(seconds=0.02):
        loop.run_until_complete(asyncio.sleep(seconds))

    made.turn = turn
    monkeypatch.setattr(live.hub, "_period_s", 0.005)
    monkeypatch.setattr(live.pump, "_period_s", 0.001)
    yield made
    live.registry.close_all()
    turn()
    assert not live.pump.running
    loop.close()


def three_rounds(link, task="a"):
    link.say(header(task), opened(task), *(finished(task, n) for n in (1, 2, 3)))
    until(lambda: link.pages.empty())


# ---------------------------------------------------------------------- without a kernel
def test_without_a_kernel_nothing_moves_by_itself(run, link):
    """No thread, no task; `refresh` folds, sends and writes."""
    panel = run.panel("fleet")
    assert not live.hub.running
    three_rounds(link)
    until(lambda: run.tasks["a"].n_timesteps == 300)
    panel.refresh()
    table = panel.picture.widget
    assert [one["kind"] for one in table.comm.custom] == ["snapshot"]
    header = json.loads(table._header)
    values = {one["key"]: value for one, value in zip(header["numbers"], header["values"], strict=True)}
    assert values["rounds"] == 3.0
    assert panel.shell.widget._code == 'run.panel("fleet")'
    assert json.loads(panel.shell.widget._header)["sentence"] == panel.view().sentence


def test_asked_for_twice_it_is_the_same_panel(run):
    """By run, name and settings; the desk, too."""
    assert run.panel("leasing", window_s=30) is run.panel("leasing", window_s=30)
    assert run.panel("leasing", window_s=30) is not run.panel("leasing")
    assert run.panel() is run.panel()
    assert run.panel().panels == (run.panel("fleet"), run.panel("leasing"))


def test_closing_leaves_no_model(run, link):
    """Panels, their children, layouts and styles are gone, twice is harmless, and the data still answers."""
    before = set(ipywidgets_widget._instances)
    desk = run.panel()
    panel = run.panel("leasing", window_s=5)
    assert set(ipywidgets_widget._instances) > before
    for one in (panel, desk, panel, desk):
        one.close()
    assert set(ipywidgets_widget._instances) == before
    assert panel.to_dict()["code"] == 'run.panel("leasing", window_s=5)'
    assert run.panel("leasing", window_s=5) is not panel


def test_a_model_that_the_user_closed_closes_the_panel(run):
    """`Widget.close_all` leaves a panel that is made anew when it is asked for."""
    panel = run.panel("leasing")
    ipywidgets.Widget.close_all()
    assert panel.closed
    panel.refresh()
    assert run.panel("leasing") is not panel
    panel.close()


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("leases", {}, "there is no panel 'leases'; did you mean 'leasing'?; there are "
         "batching, distribution, fleet, leasing, placement, swapping"),
        ("leasing", {"window": 3}, "panel leasing has no setting 'window'; did you mean 'window_s'?; "
         "there are window_s, hold"),
        ("leasing", {"window_s": -3}, "window_s must be a number > 0 s, or none, got -3"),
    ],
)  # fmt: skip
def test_wrong_words_are_refused_with_the_right_ones(run, name, settings, text):
    """The message names what there is; no model is left."""
    before = set(ipywidgets_widget._instances)
    with pytest.raises((TypeError, ValueError)) as error:
        run.panel(name, **settings)
    assert str(error.value) == text
    assert set(ipywidgets_widget._instances) == before


class Recorder:
    """Something that writes down what is called on it."""

    def __init__(self, real=None):
        self.calls = []
        self.real = real

    def panel(self, *args, **kwargs):
        self.calls.append(("panel", args, kwargs))
        return self.real.panel(*args, **kwargs) if self.real else None

    def set(self, *args, **kwargs):
        self.calls.append(("set", args, kwargs))


def test_the_copied_lines_give_an_equal_panel(run):
    """Run in another cell, they open the panel with the same settings and the same picture."""
    panel = run.panel("leasing")
    panel.fields["window"].field.value = "2 min"
    recorder = Recorder(run)
    exec(panel.code(), {"run": recorder})
    assert recorder.calls == [("panel", ("leasing",), {"window_s": 120.0})]
    assert run.panel("leasing", window_s=120.0).view().digest() == panel.view().digest()


def test_settings_change_by_code_and_show_in_the_controls(run):
    """`set` checks, the pump writes the dropdown."""
    panel = run.panel("leasing")
    assert panel.set(window_s=45) is panel
    panel.refresh()
    assert panel.fields["window"].field.value == "45 s"
    with pytest.raises(ValueError, match="got 0"):
        panel.set(window_s=0)
    assert panel.settings == {"window_s": 45.0}
    panel.set(window_s=None)
    panel.refresh()
    assert panel.fields["window"].field.value == "all"


# ---------------------------------------------------------------------- display
def test_in_a_terminal_a_run_is_its_repr(run):
    """No kernel, no model."""
    before = set(ipywidgets_widget._instances)
    assert run._repr_mimebundle_() == {"text/plain": repr(run)}
    assert set(ipywidgets_widget._instances) == before


def test_in_a_notebook_a_run_shows_its_desk_once(run, kernel):
    """Widget view and text, before it the pictures as an output that stays; a second display makes no second model."""
    data, _ = run._repr_mimebundle_()
    models = set(ipywidgets_widget._instances)
    again, _ = run._repr_mimebundle_()
    assert set(ipywidgets_widget._instances) == models
    view = "application/vnd.jupyter.widget-view+json"
    assert data[view]["model_id"] == again[view]["model_id"]
    assert data["text/html"] == ""
    twin = kernel.published[0]["text/html"]
    assert "no leases yet" in twin
    names = [panel.shell.widget.model_id for panel in run.panel().panels]
    assert [f'data-drlnb-twin="{name}"' in twin for name in names] == [True, True]
    assert "drlnb.resume(" in twin
    assert data["text/plain"] == "<Desk of fleet, leasing>"


def test_showing_never_raises(run, kernel, monkeypatch):
    """A face that fails gives text."""
    monkeypatch.setattr(faces, "face", lambda name: 1 / 0)
    assert run._repr_mimebundle_()["text/plain"] == f"{run!r}\nno panel: ZeroDivisionError: division by zero"


def test_a_picture_that_raises_gives_one_message(run, kernel, monkeypatch, caplog):
    """The view of the panel is shown all the same."""
    panel = run.panel("leasing")
    monkeypatch.setattr(panel.content, "draw", lambda name="": 1 / 0)
    with caplog.at_level(logging.CRITICAL, "drlnb"):
        data, _ = panel._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "show panel: ZeroDivisionError: division by zero" in [m.text for m in panel.messages]


# ---------------------------------------------------------------------- with a kernel
def test_the_hub_sends_and_sets_no_trait(run, link, kernel):
    """Deltas go out by the thread while the main loop stands still; traits are written on the loop alone."""
    panel = run.panel("fleet")
    table = panel.picture.widget
    shown(table)
    until(lambda: [one["kind"] for one in table.comm.custom] == ["snapshot"])
    three_rounds(link)
    until(lambda: [one["kind"] for one in table.comm.custom][:2] == ["snapshot", "delta"])
    link.say(finished("a", 4))
    until(lambda: len(table.comm.custom) >= 3)
    main = threading.current_thread().name
    assert {thread for thread, kind, data in table.comm.sent if data.get("method") == "custom"} == {"drlnb-hub"}
    assert all(thread == main for thread, _ in table.comm.updates)
    said(table, {"kind": "hello", "seq": 0})
    until(lambda: panel.picture._traits is not None)
    kernel.turn()
    assert [names for _, names in table.comm.updates if "_header" in names]
    assert all(thread == main for thread, _ in table.comm.updates)
    assert [one["seq"] for one in table.comm.custom] == list(range(1, 1 + len(table.comm.custom)))


def test_a_hidden_panel_neither_folds_nor_sends(run, link, kernel):
    """It is caught up when it is seen again, and keeps the last picture of the run for whoever comes later."""
    panel = run.panel("fleet")
    table = panel.picture.widget
    three_rounds(link)
    time.sleep(0.03)
    assert table.comm.custom == []
    assert panel.reader.fold.n_rows == 0
    link.say(ended("a"), ended("b"))
    run.watch.settle(5)
    until(lambda: panel.picture._traits is not None)
    kernel.turn()
    assert json.loads(table._header)["sentence"] == "2 tasks: 2 done"


def test_a_hello_is_answered_with_the_whole_picture(run, link, kernel):
    """Also before the page has counted its views."""
    panel = run.panel("leasing")
    timeline = panel.picture.widget
    said(timeline, {"kind": "hello", "seq": 0})
    until(lambda: timeline.comm.custom)
    assert timeline.comm.custom[0]["kind"] == "snapshot"
    assert timeline.comm.custom[0]["header"]["name"] == "leasing.gantt"


def test_a_click_returns_at_once_whatever_the_cluster_does(run, link, kernel):
    """The callback only acknowledges; Dask is asked by another thread, and its answer ends the pending state."""
    gate, threads = threading.Event(), []

    def control(run_id, action, *, task=None, reason=""):
        threads.append(threading.current_thread().name)
        gate.wait(5)
        link.asked.append((action, task))

    link.control = control
    panel = run.panel("fleet")
    table = panel.picture.widget
    began = time.perf_counter()
    clicked(table, "pause", task="a")
    assert time.perf_counter() - began < 0.05
    assert [one["kind"] for one in table.comm.custom] == ["ack"]
    gate.set()
    until(lambda: {"kind": "done", "id": "c1", "text": "pauses after this round"} in table.comm.custom)
    assert (threads, link.asked) == (["drlnb-commands"], [("pause", "a")])


def reasons(panel):
    """Why each button is off."""
    buttons = panel.content.facts()["buttons"]
    assert all(one["enabled"] == (not one["reason"]) for one in buttons)
    return {one["name"]: one["reason"] for one in buttons}


def test_buttons_for_all_tasks_follow_their_state_and_say_why_they_are_off(run, link, kernel):
    """Resume is off while nothing is paused, all are off at the end; each says so."""
    panel = run.panel("fleet")
    nothing = "no task is paused"
    assert reasons(panel) == {"pause": "", "resume": nothing, "checkpoint": "", "stop": ""}
    link.say(opened("a"), row("a", "PhaseEntered", phase="paused", round=1), ended("b"))
    until(lambda: run.tasks["a"].state == "paused" and run.tasks["b"].state == "done")
    idle = "no task is running"
    assert reasons(panel) == {"pause": idle, "resume": "", "checkpoint": idle, "stop": ""}
    assert [one["confirm"] for one in panel.content.facts()["buttons"] if one["name"] == "stop"] == ["Stop 1 task?"]
    link.say(ended("a"))
    run.watch.settle(5)
    over = "run r1 is done already"
    assert reasons(panel) == dict.fromkeys(("pause", "resume", "checkpoint", "stop"), over)
    clicked(panel.shell.widget, "stop")
    assert panel.shell.widget.comm.custom[-1]["text"] == "stop task: run r1 is done already"


def test_the_end_of_a_run_is_told_with_its_time(run, link, monkeypatch):
    """By the wall clock of the run directory, where it tells."""
    path = run.out / "status.json"
    path.write_text("{}", encoding="utf-8")
    at = time.mktime((2026, 11, 21, 12, 31, 5, 0, 0, -1))
    os.utime(path, (at, at))
    link.say(ended("a"), ended("b"))
    run.watch.settle(5)
    assert reasons(run.panel("leasing")) == {"apply": "run r1 ended at 12:31 (done)"}


def test_a_failed_task_is_started_again_by_a_click(run, link):
    """From its row while others train, and from the panel's head when all have ended."""
    panel = run.panel("fleet")
    link.say(opened("a"), ended("a", "failed", "it broke"), opened("b"))
    until(lambda: run.tasks["a"].state == "failed")
    assert [one["label"] for one in panel.content.facts()["buttons"]][-1] == "Restart 1 task"
    clicked(panel.picture.widget, "restart", task="a")
    until(lambda: panel.picture.widget.comm.custom[-1]["kind"] == "done")
    assert panel.picture.widget.comm.custom[-1]["text"] == "starts again from its newest checkpoint"
    assert (link.asked, run.tasks["a"].state) == ([("restart", "a")], "running")
    link.say(opened("a", 2), ended("a", "failed", "again", attempt=2), ended("b"))
    assert run.watch.settle(5)
    clicked(panel.shell.widget, "restart", ident="c2", task="b")
    until(lambda: panel.shell.widget.comm.custom[-1]["kind"] == "failed")
    said = "task b is done: only one that failed or was stopped can be started again"
    assert panel.shell.widget.comm.custom[-1]["text"] == said
    clicked(panel.shell.widget, "restart", ident="c3")
    until(lambda: panel.shell.widget.comm.custom[-1]["kind"] == "done")
    assert (link.asked, run.ended) == ([("restart", "a"), ("restart", "a")], False)


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("pause", {"task": "c"}, "pause task: this run has no task 'c'; there are a, b"),
        ("fly", {}, "this panel has no command 'fly'"),
    ],
)
def test_a_wrong_click_fails_in_words(run, name, args, text):
    """A page cannot ask for what there is not."""
    panel = run.panel("fleet")
    clicked(panel.shell.widget, name, **args)
    assert panel.shell.widget.comm.custom[-1] == {"kind": "failed", "id": "c1", "text": text}


def test_a_link_that_is_lost_is_told_in_the_panel(run, link):
    """One message, without a traceback: it is the world's fault."""
    panel = run.panel("fleet")
    link.control = lambda *args, **kwargs: (_ for _ in ()).throw(PeerError("scheduler", "is gone"))
    clicked(panel.shell.widget, "pause")
    until(lambda: len(panel.messages))
    (message,) = panel.messages
    assert (message.text, message.details) == ("pause task: scheduler: is gone", "")
    panel.refresh()
    assert json.loads(panel.shell.widget._messages)[0]["text"] == message.text


def test_a_cluster_that_is_gone_is_told_and_the_panel_lives_on(run, link, monkeypatch):
    """One message with the way out; buttons are off with the reason; a click on Restart is answered."""
    monkeypatch.setattr(follower, "_PAUSE_S", 0.0)
    panel = run.panel("fleet")
    link.say(header("a"), opened("a"))
    until(lambda: link.pages.empty())
    link.failure = PeerError("scheduler", "no connection")
    assert run.watch.settle(5)
    gone = "the cluster at tcp://nowhere:1 is gone (scheduler: no connection); go on with: drlnb resume "
    refreshed(panel, lambda: len(panel.messages))
    (message,) = panel.messages
    assert message.text == f"{gone}{run.out}"
    assert reasons(panel)["stop"] == "run r1 is failed already"
    clicked(panel.shell.widget, "restart", task="a")
    until(lambda: panel.shell.widget.comm.custom[-1]["kind"] == "failed")
    said = f"scheduler: no connection; go on with: drlnb.resume({str(run.out)!r})"
    assert panel.shell.widget.comm.custom[-1]["text"] == said
    panel.refresh()
    assert panel.view().value("tasks") == 2


def test_a_run_that_is_watched_no_more_has_no_buttons_though_no_row_says_so(run, link):
    """Its picture is drawn anew when the watching ends: the last row was drawn while the run could still be steered."""
    panel = run.panel("fleet")
    three_rounds(link)
    refreshed(panel, lambda: panel.view().value("rounds") == 3.0)
    assert panel.view().facts["actions"]
    assert panel.view().sentence == "2 tasks: 1 starting, 1 queued"
    run.close()
    until(lambda: run.ended)
    assert panel.view().facts["actions"] == []
    assert panel.view().sentence == "2 tasks: 1 starting, 1 queued, when last heard of"
    panel.refresh()
    assert json.loads(panel.picture.widget._header)["actions"] == []


def test_the_picture_of_leases_goes_on_by_the_pages_clock_only_while_the_run_is_followed(run, link):
    """A page draws what is held up to two seconds beyond the last row; not of a run that has ended, in whatever way."""
    panel = run.panel("leasing")
    three_rounds(link)
    refreshed(panel, lambda: panel.reader.fold.tasks)
    assert json.loads(panel.picture.widget._header)["live"] is True
    run.close()
    until(lambda: run.ended)
    panel.refresh()
    assert json.loads(panel.picture.widget._header)["live"] is False


def test_a_torn_history_is_told_and_what_is_at_hand_is_drawn(run, link):
    """A panel that comes late needs the files; a line in them that nobody can read keeps it from nothing."""
    (run.out / "journal" / "task-a-a1.jsonl").write_text('{"k":"h"\n{}\n', encoding="utf-8")
    link.say(header("a"), opened("a"), finished("a", 7), gap=True)
    until(lambda: run.tasks["a"].n_timesteps)
    panel = run.panel("fleet")
    panel.refresh()
    assert panel.view().value("rounds") == 7
    (message,) = panel.messages
    assert message.text.startswith("the beginning of this run is missing: ")
    assert "task-a-a1.jsonl:1: a stream must begin with StreamOpened" in message.text


def test_what_the_page_could_not_draw_is_a_message(run):
    """With the script's stack as details."""
    panel = run.panel("leasing")
    said(panel.picture.widget, {"kind": "js_error", "text": "offset is out of bounds", "details": "at draw"})
    (message,) = panel.messages
    assert (message.text, message.details) == ("drawing in the page: offset is out of bounds", "at draw")


def test_apply_changes_one_setting(run, link):
    """Moving the control asks nothing; Apply asks once, and is kept as code."""
    panel = run.panel("leasing")
    panel.fields["hold"].field.value = "last"
    panel.fields["task"].field.value = "b"
    assert link.asked == []
    clicked(panel.shell.widget, "apply")
    until(lambda: panel.shell.widget.comm.custom[-1]["kind"] == "done")
    assert link.asked == [("set", "leasing.hold", "last", "b")]
    recorder = Recorder()
    exec(panel.code(), {"run": recorder})
    assert recorder.calls == [
        ("panel", ("leasing",), {"hold": "last"}),
        ("set", ("leasing.hold", "last"), {"task": "b"}),
    ]


def test_apply_is_off_when_the_run_has_ended(run, link):
    """The button says why, and a late click is refused."""
    panel = run.panel("leasing")
    link.say(ended("a"), ended("b"))
    run.watch.settle(5)
    (button,) = panel.content.facts()["buttons"]
    assert (button["enabled"], button["reason"]) == (False, "run r1 is done already")
    clicked(panel.shell.widget, "apply")
    assert "run r1 is done already: nothing can be changed" in panel.shell.widget.comm.custom[-1]["text"]


def test_the_hold_dropdown_follows_the_journal(run, link):
    """Set in code or by somebody else it is shown by the pump, and no command goes back."""
    panel = run.panel("leasing")
    assert panel.fields["hold"].field.value == "round"

    def change(task, value, attempt=1):
        said = {"k": "e", "t": 1.0, "key": "leasing.hold", "value": value, "task": task}
        link.say(row(task, "SettingChanged", attempt) | said)
        until(lambda: link.pages.empty())

    link.say(header("a"), opened("a"), header("b"), opened("b"))
    change("a", "last")
    refreshed(panel, lambda: panel.fields["hold"].field.value is None)
    panel.fields["task"].field.value = "a"
    panel.refresh()
    assert panel.fields["hold"].field.value == "last"
    panel.fields["task"].field.value = "all tasks"
    change("b", "last")
    refreshed(panel, lambda: panel.fields["hold"].field.value == "last")
    panel.fields["hold"].field.value = "round"  # a wish that is not applied yet stays, and is marked
    link.say(finished("a", 1))
    until(lambda: run.tasks["a"].n_timesteps)
    panel.refresh()
    assert panel.fields["hold"].field.value == "round"
    assert "drlnb-chosen" in panel.fields["hold"].field._dom_classes
    assert link.asked == []
    clicked(panel.shell.widget, "apply")
    until(lambda: link.asked)
    panel.refresh()
    assert panel.fields["hold"].field.value == "round", "asked for, not in force yet"
    change("a", "round")
    change("b", "round")
    refreshed(panel, lambda: "drlnb-chosen" not in panel.fields["hold"].field._dom_classes)
    assert panel.fields["hold"].field.value == "round"


def refreshed(panel, look):
    """Bring a panel up to date until something is so."""

    def turn():
        panel.refresh()
        return look()

    until(turn)


def test_a_panel_without_a_picture_cannot_be_made():
    """What every panel must say is asked for when it is made, not when it is drawn."""

    class Empty(Content):
        NAME = "empty"

    with pytest.raises(TypeError, match=r"abstract method '?draw'?"):
        Empty()


def test_a_defect_of_the_journal_is_told_once(run, link):
    """The panel says what is missing and goes on."""
    panel = run.panel("fleet")
    link.say({"s": "task-a-a1", "k": "n", "r": "Defect", "text": "3 rows are missing"}, header("a"), opened("a"))
    until(lambda: run.tasks["a"].doing == "starting" and run.notices)
    panel.refresh()
    panel.refresh()
    assert [(m.level, m.text, m.n) for m in panel.messages] == [("warning", "3 rows are missing", 1)]


def test_running_a_cell_five_times_makes_nothing_more(run, kernel):
    """Threads and models are counted."""
    run._repr_mimebundle_()
    models, threads = len(ipywidgets_widget._instances), threading.active_count()
    for _ in range(5):
        run._repr_mimebundle_()
        run.panel("leasing")
    assert (len(ipywidgets_widget._instances), threading.active_count()) == (models, threads)
