"""Ranks, free slots and waiting requests keep their order under any change."""

from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.leasing.queueing import FreeSlots, Ranking, Waiting


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)), max_size=200))
def test_a_ranking_is_a_sorted_dict(steps):
    """Whatever is put, changed and dropped, the first is the smallest (number, name) of what is there."""
    ranking, there = Ranking(), {}
    for name, key in steps:
        if key is None:
            ranking.drop(name)
            there.pop(name, None)
        else:
            ranking.put(name, float(key))
            there[name] = float(key)
        assert ranking.first() == min(((number, each) for each, number in there.items()), default=None)
        assert len(ranking) == len(there)
        assert all((each in ranking) == (each in there) for each in range(6))


def test_a_ranking_does_not_keep_what_is_dead():
    """A thousand changes of one number leave few entries behind."""
    ranking = Ranking()
    for key in range(1000):
        ranking.put("a", float(key))
    assert len(ranking._heap) < 50
    assert ranking.first() == (999.0, "a")


def test_free_slots_on_the_node_come_first():
    """The requester's node, then the longest rest; an unknown slot may be dropped."""
    free = FreeSlots()
    assert free.best("n0") is None
    free.drop("n0/a", "n0")
    free.put("n0/a", "n0", 5.0)
    free.put("n1/a", "n1", 1.0)
    assert (free.best("n0"), free.best("n1"), free.best("n2")) == ("n0/a", "n1/a", "n1/a")
    free.drop("n0/a", "n0")
    assert free.best("n0") == "n1/a"
    assert "n0/a" not in free
    assert len(free) == 1


def test_free_slots_of_a_set_are_counted():
    """Only the allowed slots count and serve; a preferred one goes before the node's own."""
    free = FreeSlots()
    free.put("n0/a", "n0", 5.0)
    free.put("n1/a", "n1", 1.0)
    free.put("n2/a", "n2", 0.0)
    assert (free.count(("n0/a", "n2/a")), free.count(())) == (2, 3)
    assert free.best("n1", ("n0/a", "n2/a")) == "n2/a"
    assert free.best("n0", ("n0/a", "n2/a")) == "n0/a"
    assert free.best("n0", ("n0/a", "n2/a"), ["n1/a", "n2/a"]) == "n2/a"
    assert free.best("n0", (), ["n1/a"]) == "n1/a"
    free.drop("n2/a", "n2")
    assert free.count(("n0/a", "n2/a")) == 1
    free.put("n3/a", "n3", 9.0)
    assert free.count(("n0/a", "n2/a")) == 1
    assert free.count(()) == 3
    assert free.best("n0", ("n2/a",)) is None
    assert sorted(free) == ["n0/a", "n1/a", "n3/a"]


ANY = ((), 1)
PAIR = ((), 2)
ONE = (("n0/a",), 1)


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
    assert (queue.n(*ANY), queue.n(*PAIR), queue.n((), 7)) == (2, 1, 0)
    queue.drop("a")
    queue.drop("never")
    queue.put("d", ONE, 0.5, 3)
    assert list(queue) == ["d", "b", "c"]
    queue.drop("b")
    assert set(queue.kinds) == {ANY, ONE}
    assert "a" not in queue
    assert len(queue) == 2
