"""Ranks and waiting requests keep their order under any change, and the best free slots are lent."""

from hypothesis import given
from hypothesis import strategies as st
from lease_indices import LeaseTable
from pool_words import grant, of, requested, returned, slot_added

from drlnb.planning.leasing.queueing import RequestKind, Waiting
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.columns.leasing import LeaseGranted

ANY = RequestKind((), 1, 1)
PAIR = RequestKind((), 2, 2)
ONE = RequestKind(("n0/a",), 1, 1)


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)), max_size=200))
def test_a_line_is_sorted_whatever_is_put_moved_and_dropped(steps):
    """The first of a kind has the smallest rank of what is there, and of equal ones the smallest number."""
    queue, there = Waiting(), {}
    for number, rank in steps:
        if rank is None:
            queue.drop(str(number))
            there.pop(number, None)
        else:
            queue.put(str(number), ANY, float(rank), number)
            there[number] = rank
        order = [str(number) for _, number in sorted((rank, number) for number, rank in there.items())]
        assert list(queue) == order
        assert queue.heads(lambda kind: True) == order[:1]
        assert (len(queue), queue.n(ANY)) == (len(there), len(there))


@given(
    used=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=6, unique=True),
    node=st.sampled_from("abcd"),
    allowed=st.sets(st.integers(0, 5)),
    n_slots=st.integers(1, 3),
)
def test_the_slots_that_are_lent_are_the_best_of_the_free(used, node, allowed, n_slots):
    """On the requester's node first, then those that rested longest, then by name; only the allowed ones."""
    table = LeaseTable(LeasingSettings(residency=False), epoch=1)
    names = [f"{at}/{i}" for i, (at, _) in enumerate(used)]
    for name in names:
        table.handle(slot_added(name, node=name[0]))
    for t, name in sorted((t, name) for (_, t), name in zip(used, names, strict=True)):
        lent = grant(table, requested("x", t=float(t), round=names.index(name) + 1, allowed=(name,)))
        table.handle(returned(lent.fence, t=float(t)))
    fits = sorted((name[0] != node, t, name) for (_, t), name in zip(used, names, strict=True))
    may = {names[i] for i in allowed if i < len(names)}
    best = [name for _, _, name in fits if not may or name in may]
    out = table.handle(requested("a", t=9.0, node=node, n_slots=n_slots, allowed=tuple(may)))
    assert [lent.slots for lent in of(LeaseGranted, out)] == [tuple(best[:n_slots])] * (len(best) >= n_slots)
    table.check()


def test_requests_wait_by_rank_and_by_arrival():
    """Smaller ranks first, equal ones by arrival; whose kind does not fit is passed over; the dropped leave."""
    queue = Waiting()
    assert queue.first(lambda kind: True) is None
    for number, (name, kind, rank) in enumerate([("a", ANY, 2.0), ("b", PAIR, 1.0), ("c", ANY, 2.0), ("d", ONE, 9.0)]):
        queue.put(name, kind, rank, number)
    assert list(queue) == ["b", "a", "c", "d"]
    assert queue.first(lambda kind: True) == "b"
    assert queue.first(lambda kind: kind != PAIR) == "a"
    assert queue.first(lambda kind: kind == ONE) == "d"
    assert queue.heads(lambda kind: kind != PAIR) == ["a", "d"]
    assert (queue.n(ANY), queue.n(PAIR), queue.n(RequestKind((), 7, 7))) == (2, 1, 0)
    queue.drop("a")
    queue.drop("never")
    queue.put("d", ONE, 0.5, 3)
    assert list(queue) == ["d", "b", "c"]
    queue.drop("b")
    assert set(queue.kinds) == {ANY, ONE}
    assert "a" not in list(queue)
    assert len(queue) == 2
