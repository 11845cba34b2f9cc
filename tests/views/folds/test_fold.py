"""Journal rows become columns: in any cutting, in any interleaving, on one clock."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlnb.records.columns import leasing
from drlnb.records.common import ClockRelated, DeadlinePassed
from drlnb.records.journal import Journal, line_of
from drlnb.records.round import PhaseEntered
from drlnb.views.folds.entries import decoded, entries_of, folds, handlers_of
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.leasing import gantt
from tests.streams import stream_of
from tests.views.journals import runs, two_tasks
from tests.views.pictures import VIEWS


class Good:
    def _slots(self, stream: str, event: leasing.SlotAdded | leasing.SlotFailed, t: float) -> None: ...
    def _age(self, stream: str, t: float) -> None: ...


class Swapped:
    def _slots(self, stream: str, t: float, event: leasing.SlotAdded) -> None: ...


class AsText:
    def _slots(self, stream: str, event: "leasing.SlotAdded", t: float) -> None: ...


class Nameless:
    def _slots(self, stream, event, t): ...


class NoRecord:
    def _slots(self, stream: str, event: leasing.SlotAdded | int, t: float) -> None: ...


class WithoutStream:
    def _slots(self, event: leasing.SlotAdded, t: float) -> None: ...


class OtherName:
    def _slots(self, stream: str, event: leasing.SlotAdded, time: float) -> None: ...


def test_a_handler_that_cannot_be_read_is_told_as_its_class_is_made():
    """A fold's method that looks like one and is none would never be called; one without a record is none by intent."""
    assert [kind for kind, _ in handlers_of(folds("stream")(Good)(), "s")] == [leasing.SlotAdded, leasing.SlotFailed]
    for fold in (Swapped, AsText, Nameless, NoRecord, WithoutStream, OtherName):
        with pytest.raises(TypeError, match=rf"{fold.__name__}._slots is no handler"):
            folds("stream")(fold)


def digests(source):
    fold = fold_of(source)
    return {name: view(fold).digest() for name, view in VIEWS.items()}


@settings(max_examples=8)
@given(run=runs(), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_pieces_give_what_all_at_once_gives(run, cuts):
    """However the rows are cut, the pictures are equal; what was kept for one in between is made anew."""
    rows = list(entries_of(run.journal()))
    pieces, at = Fold(), 0
    for cut in [*sorted(cuts), len(rows)]:
        pieces.feed(rows[at:cut])
        assert [VIEWS[name](pieces) for name in ("gantt", "shares", "tasks")]
        at = max(at, cut)
    assert digests(pieces) == digests(run.journal())


@pytest.mark.thorough
@settings(max_examples=8)
@given(run=runs(), data=st.data())
def test_streams_may_come_interleaved(run, data):
    """Only the order within a stream counts, as rows arrive live and as files hold them."""
    queues = {}
    for row in entries_of(run.journal()):
        queues.setdefault(row[0], []).append(row)
    rows = []
    while queues:
        name = data.draw(st.sampled_from(sorted(queues)))
        rows.append(queues[name].pop(0))
        if not queues[name]:
            del queues[name]
    fold = Fold()
    fold.feed(rows)
    assert digests(fold) == digests(run.journal())


@settings(max_examples=8)
@given(run=runs())
def test_rows_survive_json(run):
    """Rows that travelled as JSON lines give the same pictures."""
    fold = Fold()
    fold.feed(decoded(json.loads(json.dumps({"s": name, **r.to_row()})) for name, r in entries_of(run.journal())))
    assert digests(fold) == digests(run.journal())


def test_clock_related_settles_it():
    """Before a relation is measured the clock is anyone's guess; then its error is shown."""
    fold = Fold()
    fold.feed([
        ("broker-e1", DeadlinePassed(t=1.0, name="reap")),
        ("task-a-a1", DeadlinePassed(t=1.0, name="x")),
    ])
    assert fold.clock_note() == ("a task's clock could not be related to the pool's: its marks may be shifted",)
    fold.feed([("task-a-a1", ClockRelated(t=1.0, clock="broker-e1", offset_s=2.5, error_s=0.002))])
    assert fold.clock_of()["task-a-a1"].offset_s == 2.5
    assert fold.clock_note() == ("clocks of the streams agree within 2 ms",)


def test_a_relation_holds_for_a_runs_own_copy_of_a_pools_stream():
    """It names the pool; a later stream of the same pool has the same clock, though not the same name."""
    fold = Fold()
    fold.feed([
        ("broker-e1000000000", DeadlinePassed(t=1.0, name="reap")),
        ("broker-e4000000000-2", DeadlinePassed(t=1.0, name="reap")),
        ("task-a-a1", DeadlinePassed(t=1.0, name="x")),
        ("task-a-a1", ClockRelated(t=1.0, clock="broker-e4000000000", offset_s=2.5, error_s=0.002)),
    ])
    assert fold.clock_of()["task-a-a1"].offset_s == 5.5


def test_two_pools_stand_on_one_line_by_their_epochs():
    """A broker that was started 3 s later counts its seconds from there."""
    fold = Fold()
    fold.feed((f"broker-e{e}", DeadlinePassed(t=1.0, name="reap")) for e in (5_000_000_000, 8_000_000_000))
    assert fold.clock_of()["broker-e8000000000"].offset_s == 3.0
    assert fold.now_s == 3.0


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_nothing_yet(view):
    """An empty journal is a labelled picture in every form, not an error."""
    empty = view(Journal(streams={}))
    assert "yet" in empty.sentence
    assert {"text/plain", "text/html", "application/vnd.plotly.v1+json"} == set(empty._repr_mimebundle_())


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_every_prefix_is_a_picture(view):
    """After each single row there is a picture."""
    fold = Fold()
    for row in entries_of(two_tasks().journal()):
        fold.feed([row])
        assert view(fold).digest()


def test_a_torn_stream_is_read_up_to_the_tear():
    """A last line without its end is left out, and what stands before it is drawn."""
    whole = two_tasks().journal()
    streams = {}
    for name, stream in whole.streams.items():
        lines = [line_of(stream.header), *(line_of(record) for record in stream.records)]
        streams[name] = stream_of([*lines, '{"k":"e","r":"Slo'], source=name)
    assert all(stream.torn for stream in streams.values())
    assert digests(Journal(streams=streams)) == digests(whole)


def test_rows_of_unknown_kinds_are_left_out_and_wrong_ones_refused():
    """A row names its record's class; a record lacks no field."""
    good = {"s": "broker-e1", **DeadlinePassed(t=1.0, name="x").to_row()}
    assert decoded([{}, {**good, "r": "Unheard"}, good]) == [("broker-e1", DeadlinePassed(t=1.0, name="x"))]
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'name'"):
        decoded([{"s": "broker-e1", "r": "DeadlinePassed", "t": 1.0}])


def test_a_fold_holds_state_and_no_records():
    """A long run is followed in memory that its columns need: nothing of a record that came in is held."""
    fold, stream = Fold(), "task-a-a1"
    records = [PhaseEntered(phase="collecting", round=n) for n in range(50)]
    before = [sys.getrefcount(record) for record in records]
    fold.feed((stream, record) for record in records)
    assert fold.tasks["a"].state == "collecting"
    assert [sys.getrefcount(record) for record in records] == before


def test_one_emulated_stream_makes_the_run_emulated():
    """The weakest word of all streams stands on the picture."""
    run = two_tasks()
    run.origin = "emulated"
    run.task("c")
    assert gantt.gantt(run.journal()).origin == "emulated"


def test_names_of_tasks_keep_their_place_under_append():
    """Colours and letters are given by first appearance; what comes later changes no earlier one."""
    rows, fold, before = list(entries_of(two_tasks().journal())), Fold(), ()
    for row in [row for row in rows if row[0].startswith("broker")]:
        fold.feed([row])
        now = fold.task_names()
        assert now[: len(before)] == before
        before = now
    assert before == ("a", "b")
