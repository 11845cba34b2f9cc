"""The panels of a recording: the same pictures, and buttons that say what it is."""

import pytest

import drlnb
from drlnb.records.journal import line_of
from drlnb.runtime.files.run_directory import RunDir
from drlnb.widgets import faces
from tests.fleet.test_playback import rounds
from tests.widgets.conftest import clicked


@pytest.fixture
def recorded(tmp_path, specs):
    """Return the directory of a run of 5 s."""
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": [spec.to_plain() for spec in specs]})
    for task, n in (("a", 3), ("b", 5)):
        text = "".join(map(line_of, rounds(task, first_t=0.0, n=n)))
        (folder.journal / f"task-{task}-a1.jsonl").write_text(text, encoding="utf-8")
    return folder.path


def test_a_recording_has_the_panels_of_a_run(recorded):
    """Desk, tasks and leases, at any second; going back draws what was there then."""
    play = drlnb.play(recorded, speed=None)
    table, leases = play.panel().panels
    assert play.panel("fleet") is table
    assert table.view().sentence == "2 tasks: 2 done"
    digest = table.view().digest()
    play.seek(2.5)
    assert table.view().value("rounds") == 4
    assert table.view().sentence == "2 tasks: 2 starting"
    assert leases.view().facts["live"] is False, "the page's clock is not the recording's"
    play.seek(5)
    assert table.view().digest() == digest
    assert leases.view().origin == "measured"
    assert play._repr_mimebundle_() == {"text/plain": repr(play)}


@pytest.mark.parametrize("name", ["pause", "resume", "stop", "checkpoint", "restart"])
def test_its_commands_answer_what_it_is(recorded, name):
    """No button is on, and a click all the same is answered; rows have no buttons."""
    panel = drlnb.play(recorded, speed=None).panel("fleet")
    assert {one["reason"] for one in panel.content.facts()["buttons"]} == {"this is a recording"}
    assert panel.view().header["actions"] == []
    clicked(panel.shell.widget, name, task="a")
    assert panel.shell.widget.comm.custom[-1]["text"] == f"{name} task: this is a recording"


def test_a_rule_cannot_be_changed_in_a_recording(recorded):
    """The same sentence in the lease panel."""
    panel = drlnb.play(recorded, speed=None).panel("leasing")
    clicked(panel.shell.widget, "apply")
    said = "change the hold planner: this is a recording: nothing can be changed"
    assert panel.shell.widget.comm.custom[-1]["text"] == said


def test_a_torn_journal_is_told_once_on_the_desk(recorded):
    """Two panels in one output do not say the same thing twice; the second one alone says it."""
    path = recorded / "journal" / "task-b-a1.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + "{]\n", encoding="utf-8")
    desk = faces.desk(drlnb.play(recorded, speed=None))
    desk.refresh()
    assert [len(panel.messages) for panel in desk.panels] == [1, 0]
    alone = drlnb.play(recorded, speed=None).panel("leasing")
    alone.refresh()
    assert len(alone.messages) == 1


def test_a_torn_journal_is_told_in_the_panel(recorded):
    """What can be read is drawn; the message names file and rows; the panel goes on."""
    path = recorded / "journal" / "task-b-a1.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines[:6], "{]\n", *lines[7:]]), encoding="utf-8")
    panel = drlnb.play(recorded, speed=None).panel("fleet")
    assert panel.view().value("rounds") == 5
    panel.refresh()
    (message,) = panel.messages
    assert message.level == "warning"
    assert "task-b-a1.jsonl:7: not a line of JSON" in message.text
    assert message.text.endswith("; 7 rows from there on are missing")
    panel.set()
    assert panel.view().sentence == "2 tasks: 1 starting, 1 done"
