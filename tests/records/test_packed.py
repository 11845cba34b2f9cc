"""Lines in which nothing is said twice."""

import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.records import packed
from drlnb.records.columns.leasing import LeaseGranted, LeaseRenewed, SlotFreed
from drlnb.records.common import DeadlinePassed, LoopLagged, SetDeadline, SettingChanged
from drlnb.records.errors import JournalError
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, StreamOpened, line_of, read_stream
from drlnb.records.packed import BEGIN, Packer, Unpacker
from drlnb.records.round import MetricsRecorded
from tests.strategies import records_of

HEADER = StreamOpened(stream="s", machine="pool", config={"epoch": 1}, origin="measured", version="0")
KINDS = (DeadlinePassed, LoopLagged, SetDeadline, LeaseGranted, LeaseRenewed, SlotFreed, SettingChanged, StreamOpened)
written = st.lists(st.one_of([records_of(kind) for kind in KINDS]), max_size=30)


def lines_of(*records):
    return list(map(Packer().line, records))


def read(lines):
    unpacker = Unpacker()
    return [unpacker.record(line) for line in lines]


@given(written)
def test_what_is_written_is_read(records):
    """To the last bit, as the whole lines would: 1 is not True, 0.0 not -0.0, a tuple not a number."""
    again = read(lines_of(*records))
    assert list(map(line_of, again)) == list(map(line_of, records))


def test_reading_a_record_takes_few_calls(tmp_path):
    """Of functions written in Python: its line, its values and its making; a table of nested rows a few more."""
    records = [LeaseRenewed(t=k / 8, fence=Fence(epoch=1, token=k)) for k in range(1, 300)]
    (tmp_path / "s.jsonl").write_text("".join(lines_of(HEADER, *records)))
    stream = read_stream(tmp_path / "s.jsonl")
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if event == "call" else None)
    try:
        n = sum(1 for _ in stream.records)
    finally:
        sys.setprofile(None)
    assert n == len(records)
    assert len(calls) <= 12 * n


def test_what_was_said_is_not_said_again():
    """First a whole object; then its number, bits of what is new (t is bit 0) and its values, whoever said it last."""
    first, other = DeadlinePassed(t=1.0, name="reap"), SetDeadline(name="reap", after_s=0.5)
    lines = lines_of(first, first, DeadlinePassed(t=2.5, name="reap"), other, SetDeadline(name="b", after_s=0.5), first)
    assert lines == [
        '{"#":0,"k":"e","r":"DeadlinePassed","t":1.0,"name":"reap"}\n',
        "[0,0]\n",
        "[0,1,2.5]\n",
        '{"#":1,"k":"c","r":"SetDeadline","name":"reap","after_s":0.5}\n',
        '[1,1,"b"]\n',
        '[0,3,1.0,"reap"]\n',
    ]


def test_entries_of_mappings_are_fields():
    """Of a round's scalars only those that moved are written; other scalars are another kind."""
    rows = [
        MetricsRecorded(round=k, n_timesteps=8 * k, metrics={"train/loss": loss, "train/rate": 0.1})
        for k, loss in ((1, 0.5), (2, 0.25), (2, float("nan")), (2, float("nan")))
    ]
    grown = MetricsRecorded(round=2, n_timesteps=16, metrics={**rows[1].metrics, "eval/mean": 3})
    lines = lines_of(*rows, grown)
    assert lines[1:4] == ["[0,7,2,16,0.25]\n", "[0,4,NaN]\n", "[0,0]\n"]
    assert json.loads(lines[4])["#"] == 1
    assert list(map(line_of, read(lines))) == list(map(line_of, [*rows, grown]))


def test_a_number_and_a_truth_differ():
    """As in JSON; a fence and a mapping with one key are not taken for each other."""
    values = [1, True, 1.0, None, {"a": 1}, {"a": True}, {}, "1", Fence(epoch=1, token=2), {"fences": [1, 2]}]
    records = [SettingChanged(t=0.0, key="k", value=value, task=None) for value in values]
    assert [repr(record.value) for record in read(lines_of(*records))] == list(
        map(repr, [*values[:-1], {"fences": (1, 2)}])
    )


@pytest.mark.parametrize(
    "line",
    ["[1]", "[9,0]", "[0,1]", "[0,0,5]", "[0,4,1]", "[0,-1]", "[0,0.5,1]", '["x",0]', "[[0],0]", "[]", '[0,1,"a",2]'],
)
def test_a_list_that_does_not_fit_is_refused(line):
    """It names an unknown kind, or has too many values or too few."""
    (first,) = lines_of(DeadlinePassed(t=1.0, name="reap"))
    with pytest.raises(ValueError, match="it does not follow from the lines before it"):
        read([first, line])


def test_a_field_that_a_line_does_not_have_keeps_its_default():
    """A stream of a version that did not know it yet; its further lines do not have it either (t is bit 0, value 2)."""
    first, later = read(['{"#":0,"k":"e","r":"SettingChanged","t":1.0,"key":"a","value":1,"task":null}', "[0,5,2.0,3]"])
    assert first == SettingChanged(t=1.0, key="a", value=1, task=None)
    assert later == SettingChanged(t=2.0, key="a", value=3, task=None)


@given(written)
def test_a_stream_that_begins_anew_is_whole(records):
    """Each third line needs none before it, so that a long stream may be read from there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_MOST_LINES", 3)
        lines = lines_of(*records)
    for at in range(0, len(lines), 3):
        assert lines[at].startswith(BEGIN)
        assert list(map(line_of, read(lines[at:]))) == list(map(line_of, records[at:]))


def test_kinds_without_end_begin_anew_too(monkeypatch):
    """A mapping whose keys never come again does not fill the memory of who reads."""
    monkeypatch.setattr(packed, "_MOST_KINDS", 4)
    records = [MetricsRecorded(round=1, n_timesteps=8, metrics={f"m{i}": 1}) for i in range(9)]
    lines = lines_of(*records)
    assert [line.startswith(BEGIN) for line in lines] == [i % 4 == 0 for i in range(9)]
    assert read(lines) == records


def test_the_end_of_a_long_file_is_read_alone(tmp_path, monkeypatch):
    """From where it begins anew within the last bytes; the header is known all the same; a short file is read whole."""
    monkeypatch.setattr(packed, "_MOST_LINES", 3)
    records = [DeadlinePassed(t=float(i), name="reap") for i in range(30)]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(lines_of(HEADER, *records)))
    assert tuple(read_stream(path, tail=True).records) == tuple(records)
    monkeypatch.setattr("drlnb.records.journal._TAIL_BYTES", 300)
    tail = read_stream(path, tail=True)
    assert tail.header == HEADER
    last = list(tail.records)
    assert len(last) < 15
    assert last == records[-len(last) :]
    path.write_text("".join(map(line_of, [HEADER, *records])))  # whole lines alone: none says that it begins anew
    assert tuple(read_stream(path, tail=True).records) == tuple(records)


def test_a_stream_in_several_files_is_one(tmp_path):
    """In the order of their numbers, the newest last; its header is the first one's; none among them may be missing."""
    for number, name in ((2, "s~2"), (10, "s~10"), (11, "s"), (9, "s~9"), (0, "other")):
        header = StreamOpened(stream="s", machine="pool", config={"n": number}, origin="measured", version="0")
        (tmp_path / f"{name}.jsonl").write_text("".join(lines_of(header, LoopLagged(t=float(number), lag_s=0.0))))
    with pytest.raises(JournalError, match=r"s\.jsonl: a part is missing between s~2\.jsonl and s~10\.jsonl"):
        Journal.read(tmp_path)
    (tmp_path / "s~2.jsonl").unlink()
    journal = Journal.read(tmp_path)
    assert list(journal.streams) == ["other", "s"]
    stream = journal.streams["s"]
    assert stream.header.config == {"n": 9}
    for _ in range(2):
        assert [event.t for event, _ in stream.answers()] == [9.0, 10.0, 11.0]


def test_a_file_is_read_each_time_and_as_far_as_it_went(tmp_path):
    """What is written later, torn lines included, is no part of what was read before; a file that is gone is named."""
    path = tmp_path / "journal" / "s.jsonl"
    path.parent.mkdir()
    first, later = DeadlinePassed(t=1.0, name="a"), DeadlinePassed(t=2.0, name="b")
    lines = lines_of(HEADER, first, later)
    path.write_text("".join(lines[:2]) + lines[2][:4])
    journal = Journal.read(tmp_path)
    stream = journal.streams["s"]
    path.write_text("".join(lines))
    for _ in range(2):
        assert list(stream.answers()) == [(first, ())]
    assert (stream.torn, list(stream.records)) == (True, [first])
    assert Journal.read(tmp_path).of(DeadlinePassed) == (first, later)
    path.unlink()
    with pytest.raises(JournalError, match=re.escape(f"{path}: No such file")):
        list(stream.records)
