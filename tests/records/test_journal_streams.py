"""Streams of records in files."""

import json
import re
from pathlib import Path

import pytest

from drlnb import records
from drlnb.records.common import DeadlinePassed, LoopLagged, SetDeadline
from drlnb.records.errors import JournalError
from drlnb.records.journal import COLUMNS, JOURNAL_FORMAT, Journal, StreamOpened, line_of, read_stream
from tests.streams import stream_of

HEADER = StreamOpened(stream="s", machine="pool", config={"epoch": 1}, origin="measured", version="0")
EVENT = DeadlinePassed(t=1.0, name="reap")
COMMAND = SetDeadline(name="reap", after_s=0.25)


def lines(*records):
    return [line_of(record) for record in records]


def test_a_stream_is_read_back():
    """Header and records are equal to what was written."""
    stream = stream_of(lines(HEADER, EVENT, COMMAND), source="x")
    assert stream.header == HEADER
    assert stream.records == (EVENT, COMMAND)
    assert not stream.torn
    assert HEADER.format == JOURNAL_FORMAT


def test_every_column_of_records_can_be_read_back():
    """Whoever imports the journal alone knows all records: each module that defines some is one of its columns."""
    folder = Path(records.__file__ or "").parent
    pattern = re.compile(r"^class \w+\((Event|Decision|Command)\)", re.MULTILINE)
    told = {path.stem for path in folder.rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))}
    assert told == {column.__name__.rpartition(".")[2] for column in COLUMNS}


def test_answers_belong_to_the_event_before_them():
    """Also when there are none."""
    later = LoopLagged(t=2.0, lag_s=1.0)
    stream = stream_of(lines(HEADER, EVENT, COMMAND, COMMAND, later), source="x")
    assert list(stream.answers()) == [(EVENT, (COMMAND, COMMAND)), (later, ())]
    assert stream.of(SetDeadline) == (COMMAND, COMMAND)
    assert list(stream_of(lines(HEADER), source="x").answers()) == []


@pytest.mark.parametrize("n", [1, 10, 40])
def test_a_torn_last_line_is_left_out(n):
    """The process was killed while it wrote."""
    text = [*lines(HEADER, EVENT), line_of(COMMAND)[:n]]
    stream = stream_of(text, source="x")
    assert stream.torn
    assert stream.records == (EVENT,)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ('{"k":"e","r":"Dead\n', r"j\.jsonl:2: not a line of JSON"),
        ('{"k":"e"} {}\n', r"j\.jsonl:2: not a line of JSON \(Extra data: char 9\)"),
        ("[1]\n", r"j\.jsonl:2: it does not follow from the lines before it"),
        ('{"r":"Nonsense"}\n', r"j\.jsonl:2: unknown record 'Nonsense'"),
        ('{"r":"DeadlinePassed","t":1,"colour":2}\n', r"j\.jsonl:2: DeadlinePassed: .*'colour'"),
        ('{"r":"DeadlinePassed","t":1,"name":{"fence":3}}\n', r"j\.jsonl:2: DeadlinePassed: "),
    ],
)
def test_a_broken_line_in_the_middle_is_named(tmp_path, broken, message):
    """File and line, then what is wrong."""
    path = tmp_path / "j.jsonl"
    path.write_text("".join([line_of(HEADER), broken, line_of(EVENT)]))
    with pytest.raises(JournalError, match=message):
        list(read_stream(path).records)


def test_empty_lines_are_left_out_and_counted():
    """Of an editor, say: what stands around them is read, and a line that is broken keeps its number."""
    assert stream_of([line_of(HEADER), "\n", line_of(EVENT), " \n"], source="x").records == (EVENT,)
    with pytest.raises(JournalError, match=r"x:4: unknown record 'Nonsense'"):
        stream_of([line_of(HEADER), "\n", "  \n", '{"r":"Nonsense"}\n'], source="x")


def test_a_file_that_is_cut_after_it_was_opened_gives_what_is_left(tmp_path):
    """The records are read from the file each time; another file system may have lost the end of it."""
    path = tmp_path / "j.jsonl"
    path.write_text("".join([line_of(HEADER), line_of(EVENT), line_of(EVENT)]))
    stream = read_stream(path)
    assert tuple(stream.records) == (EVENT, EVENT)
    path.write_text("".join([line_of(HEADER), line_of(EVENT)]))
    assert tuple(stream.records) == (EVENT,)


@pytest.mark.parametrize("text", [[], [line_of(EVENT)], [line_of(HEADER)[:-1]]])
def test_a_stream_begins_with_its_header(text):
    """Nothing, something else, or a torn header is refused."""
    with pytest.raises(JournalError, match="x:1: a stream must begin with StreamOpened"):
        stream_of(text, source="x")


@pytest.mark.parametrize(
    ("key", "value"), [("format", JOURNAL_FORMAT + 1), ("format", 3), ("format", str(JOURNAL_FORMAT)), ("other", None)]
)
def test_another_format_is_refused(key, value):
    """Older and newer alike, whatever its header holds; the way out is in the message."""
    row = HEADER.to_row() | {"odd": 1, "version": "0.7"}
    del row["format"]
    formats = f"journal format {value}, this drlnb reads {JOURNAL_FORMAT}"
    message = rf"x:1: {formats}: read it with the version that wrote it \(0\.7\)"
    with pytest.raises(JournalError, match=message):
        stream_of([json.dumps(row | {key: value}) + "\n"], source="x")


def test_a_header_with_an_unknown_field_is_named():
    """Of this format, and yet not ours."""
    with pytest.raises(JournalError, match=r"x:1: StreamOpened: .*'odd'"):
        stream_of([json.dumps(HEADER.to_row() | {"odd": 1}) + "\n"], source="x")


def test_a_journal_is_read_from_run_or_journal_directory(tmp_path):
    """Streams by file name, sorted; a file that is still empty is no stream yet."""
    folder = tmp_path / "journal"
    folder.mkdir()
    (folder / "b.jsonl").write_text("".join(lines(HEADER, EVENT)))
    (folder / "a.jsonl").write_text("".join(lines(HEADER, EVENT, COMMAND)))
    (folder / "empty.jsonl").touch()
    for directory in (tmp_path, folder):
        journal = Journal.read(directory)
        assert list(journal.streams) == ["a", "b"]
        assert journal.of(DeadlinePassed, SetDeadline) == (EVENT, COMMAND, EVENT)


def test_a_directory_without_a_journal(tmp_path):
    """The message says where it was looked for."""
    with pytest.raises(JournalError, match=r"no journal here \(looked for .*\*\.jsonl\)"):
        Journal.read(tmp_path)


def test_a_file_that_cannot_be_read(tmp_path):
    """The message names it."""
    with pytest.raises(JournalError, match=r"gone\.jsonl: No such file"):
        read_stream(tmp_path / "gone.jsonl")
