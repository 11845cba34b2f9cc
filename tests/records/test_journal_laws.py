"""Laws of streams of lines: whatever was written comes back, and whatever is cut off is a prefix of it."""

import math
import re
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.records.base import Event, Record
from drlnb.records.columns.leasing import LeaseExpired, LeaseGranted, LeaseRenewed, SlotFreed
from drlnb.records.common import DeadlinePassed, LoopLagged, SetDeadline
from drlnb.records.errors import JournalError
from drlnb.records.journal import Journal, StreamOpened, line_of
from drlnb.records.units import said_s
from tests.strategies import records_of
from tests.streams import stream_of

HEADER = StreamOpened(stream="s", machine="pool", config={"epoch": 1}, origin="measured", version="0")
KINDS = (DeadlinePassed, LoopLagged, SetDeadline, LeaseGranted, LeaseRenewed, LeaseExpired, SlotFreed)
written = st.lists(st.one_of([records_of(kind) for kind in KINDS]), max_size=8)


def read(records):
    return stream_of([line_of(record) for record in (HEADER, *records)], source="x")


@given(written)
def test_events_and_their_answers_are_all_that_was_written(records):
    """From the first event on nothing is lost, nothing stands twice, and no answer holds an event."""
    stream = read(records)
    assert stream.records == tuple(records)
    first = next((i for i, record in enumerate(records) if isinstance(record, Event)), len(records))
    pairs = list(stream.answers())
    assert tuple(chain.from_iterable((event, *answer) for event, answer in pairs)) == tuple(records[first:])
    assert not any(isinstance(record, Event) for _, answer in pairs for record in answer)


@given(written)
def test_a_record_has_the_time_of_the_event_before_it(records):
    """Its own, if it is one; 0 before the first."""
    stream, t, expected = read(records), 0.0, []
    for record in records:
        t = record.t if isinstance(record, Event) else t
        expected.append((t, record))
    assert list(stream.timed(Record)) == expected
    assert list(stream.timed(SetDeadline)) == [pair for pair in expected if isinstance(pair[1], SetDeadline)]
    assert stream.of(SetDeadline, SlotFreed) == tuple(r for r in records if isinstance(r, SetDeadline | SlotFreed))


@given(written, st.data())
def test_a_file_that_is_cut_off_anywhere_holds_a_prefix(records, data):
    """Behind its header: whole lines are read, the rest of a line is left out and said to be torn."""
    text = "".join(line_of(record) for record in (HEADER, *records))
    cut = data.draw(st.integers(len(line_of(HEADER)), len(text)))
    stream = stream_of(text[:cut].splitlines(keepends=True), source="x")
    n_whole = text[:cut].count("\n") - 1
    assert stream.records == tuple(records[:n_whole])
    assert stream.torn == (not text[:cut].endswith("\n"))


@given(written, st.data(), st.sampled_from(["{", "[]\n", "null\n", '{"r":"Nonsense"}\n', '{"r":"SlotFreed"}\n']))
def test_a_broken_line_is_named_by_its_number(records, data, broken):
    """Wherever it stands but at the torn end; the header is line 1."""
    lines = [line_of(record) for record in (HEADER, *records)]
    at = data.draw(st.integers(1, len(lines)))
    lines.insert(at, broken if broken.endswith("\n") else broken + "\n")
    with pytest.raises(JournalError, match=rf"/x:{at + 1}: "):
        stream_of(lines, source="x")


@given(written, written)
def test_a_journal_is_its_streams_one_after_the_other(first, second):
    """In the order in which it holds them."""
    journal = Journal(streams={"a": read(first), "b": read(second)})
    for kinds in ((SetDeadline,), (LeaseGranted, SlotFreed), (Event,)):
        assert journal.of(*kinds) == tuple(record for record in [*first, *second] if isinstance(record, kinds))


@given(st.floats(1e-9, 1e9), st.integers(1, 6))
def test_a_duration_in_words_is_that_duration(seconds, digits):
    """To as many digits; without an exponent, with its sign, in milliseconds below a second."""
    text = said_s(seconds, digits)
    number, unit = re.fullmatch(r"(\d+(?:\.\d+)?) (m?s)", text).groups()
    value = float(number) / (1000 if unit == "ms" else 1)
    assert value == pytest.approx(seconds, rel=0.51 * 10 ** (1 - digits))
    assert (unit == "ms") == (float(f"{seconds * 1e3:.{digits}g}") < 1000)
    assert said_s(-seconds, digits) == f"-{text}"
    assert not number.endswith(".0")
    assert math.isfinite(value)
