from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.leasing.queueing import FifoQueue, FreeSlots, Ranking


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


def test_a_queue_keeps_the_order_of_arrival():
    """First in, first out; the dropped leave; who comes twice keeps the first place."""
    queue = FifoQueue()
    assert queue.first() is None
    for name in ("b", "a", "c", "b"):
        queue.put(name)
    queue.drop("a")
    queue.drop("never")
    assert list(queue) == ["b", "c"]
    assert queue.first() == "b"
    assert len(queue) == 2
    assert "a" not in queue
