import tracemalloc

import pytest

from drlnb.fleet.rows import row_feed as module
from drlnb.fleet.rows.row_feed import Rows
from drlnb.records.errors import JournalError
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.records.packed import Packer
from drlnb.records.round import PhaseEntered
from drlnb.views.folds.entries import decoded


def rows_of(n, first=0, stream="s"):
    return [(stream, PhaseEntered(phase="waiting", round=i)) for i in range(first, n)]


def journal_of(n, stream="s"):
    opened = StreamOpened(stream=stream, machine="round", config={}, origin="measured", version="1")
    records = tuple(PhaseEntered(phase="waiting", round=i) for i in range(n))
    return Journal(streams={stream: Stream(header=opened, records=records, torn=False, source=stream)})


def drained(tap):
    anew, found = tap.drain()
    return anew, list(found)


def no_journal():
    raise JournalError("no journal here")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 10)


def test_a_late_watcher_gets_the_run_from_its_beginning():
    """The first drain begins anew, the next ones go on."""
    rows = Rows(no_journal)
    rows.add(rows_of(3))
    tap = rows.tap()
    rows.add(rows_of(5, 3))
    assert tap.n_waiting == 5
    assert tap.drain() == (True, rows_of(5))
    rows.add(rows_of(6, 5))
    assert tap.n_waiting == 1
    assert tap.drain() == (False, rows_of(6, 5))
    assert tap.drain() == (False, [])


def test_two_watchers_do_not_take_from_each_other():
    """Each at its own pace."""
    rows = Rows(no_journal)
    one, two = rows.tap(), rows.tap()
    rows.add(rows_of(2))
    assert one.drain()[1] == two.drain()[1] == rows_of(2)


@pytest.mark.parametrize("n_written", [14, 17, 20, 25])
def test_what_is_not_at_hand_any_more_comes_from_the_files(small, n_written):
    """The files may be behind or ahead of what was streamed: no row is there twice, none is missing."""
    rows = Rows(lambda: journal_of(n_written))
    rows.add(rows_of(12))
    rows.add(rows_of(20, 12))
    tap = rows.tap()
    assert tap.n_waiting == float("inf")
    anew, found = drained(tap)
    assert anew
    assert [record.round for _, record in found if isinstance(record, PhaseEntered)] == list(range(20))
    assert isinstance(found[0][1], StreamOpened)


def test_a_watcher_that_is_too_slow_begins_anew(small):
    """Its queue does not grow without end."""
    rows = Rows(lambda: journal_of(30))
    tap = rows.tap()
    rows.add(rows_of(5))
    assert tap.drain() == (True, rows_of(5))
    rows.add(rows_of(30, 5))
    anew, found = drained(tap)
    assert anew
    assert [record.round for _, record in found[1:]] == list(range(30))


def test_a_gap_makes_every_watcher_begin_anew():
    """What the broker could not keep is in the files."""
    rows = Rows(lambda: journal_of(9))
    tap = rows.tap()
    rows.add(rows_of(2))
    tap.drain()
    rows.add(rows_of(9, 6), gap=True)
    anew, found = drained(tap)
    assert anew
    assert [record.round for _, record in found[1:]] == list(range(9))


def test_a_beginning_that_nobody_has_is_told(small):
    """The rows that are left are shown all the same."""
    rows = Rows(no_journal)
    rows.add(rows_of(15))
    _, found = drained(rows.tap())
    assert found[0][1].text == "the beginning of this run is missing: no journal here"
    assert found[1:] == rows_of(15, 5)


def test_a_closed_watcher_hears_no_more():
    """Nothing is kept for it."""
    rows = Rows(no_journal)
    tap = rows.tap()
    tap.drain()
    tap.close()
    rows.add(rows_of(3))
    assert tap.drain() == (False, [])


def test_tuples_of_the_network_are_lists_of_the_files(small):
    """The same record is known by either."""
    opened = StreamOpened(stream="s", machine="round", config={"a": [1, 2]}, origin="measured", version="1")
    stream = Stream(header=opened, records=(), torn=False, source="s")
    rows = Rows(lambda: Journal(streams={"s": stream}))
    rows.add(decoded([{"s": "s", **opened.to_row(), "config": {"a": (1, 2)}}]), gap=True)
    assert [type(record) for _, record in rows.tap().drain()[1]] == [StreamOpened]


@pytest.mark.parametrize(
    ("kept", "expected"), [((1, 2, 1), 3), ((2, 1), 4), ((1, 1), 2), ((9,), None), ((), None), ((1, 2), 3)]
)
def test_where_a_later_piece_begins(kept, expected):
    """At the last place where all of it is in the file, or at its end, which may hold its first records alone."""
    records = {n: PhaseEntered(phase="waiting", round=n) for n in (1, 2, 9)}
    written = (records[n] for n in (1, 2, 1, 1, 2))
    assert module._overlap(written, [records[n] for n in kept]) == expected


def test_a_late_watcher_holds_no_more_than_what_is_at_hand(small, tmp_path):
    """The beginning of a run of 1,500 rows is read from its file while it is folded."""
    (stream,) = journal_of(1500).streams.values()
    path = tmp_path / "journal" / "s.jsonl"
    path.parent.mkdir()
    path.write_text("".join(map(Packer().line, (stream.header, *stream.records))))
    rows = Rows(lambda: Journal.read(tmp_path))
    rows.add(rows_of(1510, 1490), gap=True)
    list(rows.tap().drain()[1])  # the first one of a process makes decoders, which stay
    tracemalloc.start()
    anew, found = rows.tap().drain()
    n = sum(1 for _ in found)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (anew, n) == (True, 1 + 1510)
    assert peak < 100_000


def test_a_file_that_breaks_off_is_told_where_it_does(small, tmp_path):
    """What could be read of it comes first, then what is at hand."""
    (stream,) = journal_of(20).streams.values()
    path = tmp_path / "journal" / "s.jsonl"
    path.parent.mkdir()
    lines = list(map(Packer().line, (stream.header, *stream.records)))
    path.write_text("".join([*lines[:5], "{\n", *lines[5:]]))
    rows = Rows(lambda: Journal.read(tmp_path))
    rows.add(rows_of(25, 10), gap=True)
    _, found = drained(rows.tap())
    assert f"{path}:6: not a line of JSON" in found[0][1].text
    assert found[1:] == rows_of(25, 15)
