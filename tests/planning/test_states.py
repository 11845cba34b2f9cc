"""Every state of every machine survives JSON, whatever its fields hold."""

import functools
import json
import types
import typing
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.codec import from_plain, to_plain
from drlnb.planning.distribution import Link
from drlnb.planning.leasing.fence import FenceGate, StoreGate
from drlnb.planning.leasing.hold import Batch, Hold
from drlnb.planning.leasing.life import Lease, Slot, TaskBook
from drlnb.planning.leasing.load import LoadBook
from drlnb.planning.placement.tasks import Placed
from drlnb.planning.round.collectors import Crew
from drlnb.planning.round.collectors import Member as RoundMember
from drlnb.planning.round.progress import Progress
from drlnb.planning.warmup.history import History, RoundRow, StartBook
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.state import Member as WarmupMember
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records.base import Record
from drlnb.records.base import from_plain as header_of
from drlnb.records.common import DeadlinePassed
from drlnb.records.ids import Fence
from tests.strategies import fewer, records_of

STATES = [
    Batch, Crew, FenceGate, History, Hold, Lease, LoadBook, Progress, RoundMember, RoundRow,
    RoundTrace, Slot, StartBook, StoreGate, TaskBook, WarmupMember, WarmupPlan, Placed,
]  # fmt: skip

numbers = st.floats(allow_nan=False, allow_infinity=False)
SIMPLE = {
    str: st.text(max_size=4), int: st.integers(-(2**53), 2**53), float: numbers, bool: st.booleans(),
    type(None): st.none(), object: st.none() | st.integers(0, 9) | st.text(max_size=3),
    Fence: st.builds(Fence, epoch=st.integers(0, 2**62), token=st.integers(0, 99)),
    Link: st.builds(Link.of, st.floats(1.0, 1e12), latency_s=st.floats(0.0, 1.0)),
    Record: st.builds(DeadlinePassed, t=numbers, name=st.text(max_size=3)),
}  # fmt: skip


@functools.cache
def of_type(hint):
    """Return values of an annotation, as the state of a machine may hold them."""
    if hint in SIMPLE:
        return SIMPLE[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return st.one_of(*map(of_type, arguments))
    if origin in {list, deque, set, Sequence}:
        kind = list if origin is Sequence else origin
        if origin is set:
            return st.sets(of_type(arguments[0]), max_size=3)
        return st.lists(of_type(arguments[0]), max_size=3).map(kind)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of_type, arguments))
    if origin in {dict, Mapping}:
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=2)
    if issubclass(hint, Record):
        return records_of(hint)
    assert is_dataclass(hint), hint
    return state_of(hint)


@functools.cache
def state_of(kind):
    """Return states of a class; a field whose length is bounded keeps that of its default."""
    hints = typing.get_type_hints(kind)
    kept = {each.name: each for each in fields(kind) if not each.metadata.get("transient")}
    values = {name: of_type(hints[name]).map(bounded(kept[name])) for name in kept}
    return st.builds(kind, **values)


def bounded(field):
    def fit(value):
        if isinstance(value, deque) and field.default_factory is not MISSING:
            return deque(value, maxlen=field.default_factory().maxlen)
        return value

    return fit


@pytest.mark.parametrize("kind", STATES, ids=lambda kind: f"{kind.__module__.split('.')[-1]}.{kind.__name__}")
def test_a_state_survives_json_whatever_it_holds(kind):
    """As lists, and as the tuples that a journal's header makes of them; its plain form is the same again."""

    @given(state_of(kind))
    @fewer(3)
    def check(state):
        plain = json.loads(json.dumps(to_plain(state)))
        for form in (plain, header_of(plain)):
            again = from_plain(kind, form)
            assert again == state
            assert to_plain(again) == to_plain(state)

    check()


@pytest.mark.parametrize("kind", STATES, ids=lambda kind: f"{kind.__module__.split('.')[-1]}.{kind.__name__}")
def test_a_snapshot_of_other_fields_is_refused(kind):
    """One that lacks a field, or has one that this version does not know, names it."""

    @given(state_of(kind))
    @fewer(10)
    def check(state):
        plain = to_plain(state)
        with pytest.raises(ValueError, match=f"snapshot of {kind.__name__}: unknown field 'zz_new'"):
            from_plain(kind, plain | {"zz_new": 1})
        first = min(plain)
        with pytest.raises(ValueError, match=f"snapshot of {kind.__name__}: no field '{first}'"):
            from_plain(kind, {name: value for name, value in plain.items() if name != first})

    check()


def test_a_bounded_memory_stays_bounded():
    """What is restored forgets as what was written did."""
    book = TaskBook()
    for i in range(100):
        book.holds.append(float(i))
        book.ended.append(str(i))
    again = from_plain(TaskBook, json.loads(json.dumps(to_plain(book))))
    assert (again.holds.maxlen, again.ended.maxlen) == (book.holds.maxlen, book.ended.maxlen)
    again.holds.append(100.0)
    assert len(again.holds) == len(book.holds)


# ------------------------------------------------------------------ the gates of resources
fences = st.builds(Fence, epoch=st.integers(1, 3), token=st.integers(1, 4))


@given(st.lists(fences, max_size=30))
def test_an_executor_admits_what_never_falls(arrivals):
    """A fence is admitted if none before it was higher; what is refused changes nothing."""
    gate, highest = FenceGate(), None
    for fence in arrivals:
        refused = gate.admit(fence)
        if highest is None or (fence.epoch, fence.token) >= (highest.epoch, highest.token):
            assert refused is None
            highest = fence
        else:
            assert refused == (
                f"fence {fence} of epoch {fence.epoch} is below the highest seen, {highest} of epoch {highest.epoch}"
            )
        assert gate.highest == highest


@given(
    st.lists(
        st.tuples(st.sampled_from(["learn", "admit", "carry"]), fences, st.integers(1, 3), st.integers(1, 8)),
        max_size=40,
    )
)
def test_a_store_commits_each_version_once_and_in_order(steps):
    """From the newest attempt and fence that it knows of; a carried version needs no lease."""
    gate = StoreGate()
    version, attempt, highest, committed = 0, 0, Fence(epoch=0, token=0), []
    for op, fence, of_attempt, of_version in steps:
        newest = of_attempt >= attempt and (op == "carry" or fence >= highest)
        next_one = op == "learn" or of_version == version + 1
        arguments = {"learn": (fence, of_attempt), "admit": (fence, of_attempt, of_version)}
        refused = getattr(gate, op)(*arguments.get(op, (of_attempt, of_version)))
        assert (refused is None) == (newest and next_one)
        if refused is not None:
            continue
        if op != "carry":
            attempt, highest = of_attempt, fence
        if op != "learn":
            version = of_version
            committed.append(version)
    assert committed == [*range(1, len(committed) + 1)]
    assert gate.version == version
    assert gate.attempt == attempt
