import json

import pytest

from drlnb.cli.main import main
from drlnb.planning.round.machine import RoundMachine
from drlnb.records.journal import StreamOpened, line_of
from drlnb.records.round import StopAsked, TaskOpened

CONFIG = {"task": "a", "n_envs": 2, "n_collectors": 1, "n_steps": 8, "total_timesteps": 100}
EVENTS = (
    TaskOpened(t=0.0, attempt=1, version=0, n_rounds=0, n_timesteps=0, elapsed_s=0.0, episodes=(), n_bytes=0),
    StopAsked(t=1.0, reason="asked for"),
)


@pytest.fixture
def journal(tmp_path):
    """Return the file of a short but whole stream."""
    machine = RoundMachine(CONFIG)
    header = StreamOpened(stream="task-a-a1", machine="round", config=CONFIG, origin="measured", version="0.1.0")
    records = [record for event in EVENTS for record in (event, *machine.handle(event))]
    (tmp_path / "journal").mkdir()
    path = tmp_path / "journal" / "task-a-a1.jsonl"
    path.write_text("".join(line_of(record) for record in (header, *records)))
    return path


def replay(journal):
    return main(["replay", str(journal.parent.parent)])


def test_a_whole_journal_replays(journal, capsys):
    """Counts of each record, then the verdict."""
    assert replay(journal) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("task-a-a1: 2 events, ")
    assert "           1 StopAsked" in lines
    assert lines[-1] == "1 streams, every decision identical"


def test_an_edited_decision_is_found(journal, capsys):
    """The first difference is named with file, event and both answers."""
    journal.write_text(journal.read_text().replace('"phase":"starting"', '"phase":"computing"'))
    assert replay(journal) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"first difference: {journal}: event 1 (TaskOpened, t=0.000000)")
    assert "'phase': 'starting'" in last
    assert "'phase': 'computing'" in last


def test_a_torn_last_line_is_no_difference(journal, capsys):
    """A killed writer leaves half a line; the rest agrees."""
    journal.write_text(journal.read_text()[:-5])
    assert replay(journal) == 0
    assert "every decision identical" in capsys.readouterr().out


def test_a_broken_line_is_told_with_its_place(journal, capsys):
    """A line that somebody edited into nonsense is wrong input."""
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([*lines[:2], "{nonsense\n", *lines[2:]]))
    assert replay(journal) == 2
    assert capsys.readouterr().err.startswith(f"drlnb: {journal}:3: ")


def test_a_machine_of_another_kind_is_wrong_input(journal, capsys):
    """A journal of a later version may hold machines that this one does not know."""
    lines = journal.read_text().splitlines(keepends=True)
    header = json.loads(lines[0]) | {"machine": "market"}
    journal.write_text("".join([json.dumps(header) + "\n", *lines[1:]]))
    assert replay(journal) == 2
    assert capsys.readouterr().err == "drlnb: task-a-a1: unknown machine 'market'\n"


def test_a_directory_without_a_journal_is_wrong_input(tmp_path, capsys):
    """The place that was looked at is named."""
    assert main(["replay", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"drlnb: {tmp_path}: no journal here (looked for {tmp_path}/*.jsonl)\n"


@pytest.mark.parametrize("damage", ["deleted", "emptied", "cut"])
def test_a_stream_that_was_lost_is_named(journal, capsys, damage):
    """The run's status names its streams and their lengths: what is not there cannot be identical."""
    other = journal.with_name("broker-e1.jsonl")
    other.write_text(journal.read_text())
    sizes = {path.stem: path.stat().st_size for path in (journal, other)}
    (journal.parent.parent / "status.json").write_text(json.dumps({"tasks": {}, "streams": sizes | {"task-b-a1": 0}}))
    assert replay(journal) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 streams, every decision identical"
    left = 0
    if damage == "deleted":
        other.unlink()
    else:
        lines = other.read_text().splitlines(keepends=True)[: -1 if damage == "cut" else 0]
        left = other.write_text("".join(lines))
    assert replay(journal) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"LOST broker-e1: {left} of at least {sizes['broker-e1']} bytes are there"
    assert main(["replay", str(journal.parent)]) == 1


@pytest.mark.parametrize("text", ["[]", '{"tasks": []}', "7", '{"tasks": 1}'])
def test_a_broken_status_is_wrong_input(journal, capsys, text):
    """It is not believed, and not passed over."""
    (journal.parent.parent / "status.json").write_text(text)
    assert replay(journal) == 2
    assert "status.json is not what drlnb wrote" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", '{"tasks": {}}', '{"streams": 7}', '{"streams": {"a": "b"}}'])
def test_without_a_list_of_streams_the_verdict_says_what_it_leaves_open(journal, capsys, text):
    """A journal that was copied alone can be replayed, but nobody knows what else there was."""
    if text:
        (journal.parent.parent / "status.json").write_text(text)
    assert replay(journal) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "status.json names no streams: whether one was lost cannot be told",
        "1 streams, every decision identical",
    ]


@pytest.mark.parametrize(("before", "after"), [('"t":1.0', '"t":null'), ('"n_rounds":0', '"n_rounds":[1]')])
def test_a_value_of_a_wrong_kind_is_named(journal, capsys, before, after):
    """With stream, record and field; or it is the first difference, where the machine refuses it."""
    text = journal.read_text()
    assert before in text
    journal.write_text(text.replace(before, after, 1))
    code = replay(journal)
    said = capsys.readouterr()
    if code == 2:
        assert f"{journal} is not what drlnb wrote: " in said.err
        assert f"{before.split(chr(34))[1]} must be " in said.err
    else:
        assert said.out.splitlines()[-1].startswith(f"first difference: {journal}: event ")
    assert "--debug shows where" not in said.err
