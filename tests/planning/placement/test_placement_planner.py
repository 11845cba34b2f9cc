"""Where a task computes and its collectors live."""

import itertools
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drlnb.planning.placement import PLACEMENT, Placement, PlacementView
from drlnb.planning.registry import Answer, PlannerFailed
from drlnb.records.columns.placement import Candidate, PlacementPlanned, Weighed

#: Planners that need no file of weights.
NAMES = [name for name in PLACEMENT.names if "weights" not in PLACEMENT.parameters(name)]


def planned(name, view):
    return PLACEMENT.ask(PLACEMENT.build(name), view)


def view(n_collectors, *, node="n0", homes=None, before=(), **free):
    homes = {"n0/a": 0, "n1/a": 0} if homes is None else homes
    return PlacementView(homes=homes, free_collectors=free, node=node, n_collectors=n_collectors, before=before)


def test_home_is_the_first_slot_that_is_home_to_the_fewest():
    """Fewest homes before name; every live slot is allowed; collectors are spread."""
    seen = view(2, homes={"n1/a": 0, "n0/b": 1, "n0/c": 0}, node="n1", n0=1, n1=1)
    assert planned("first", seen) == Placement(
        slots=("n0/c",), allowed=("n0/b", "n0/c", "n1/a"), collector_nodes=("n1", "n0")
    )


@pytest.mark.parametrize("name", NAMES)
def test_without_a_slot_there_is_no_home(name):
    """Collectors are placed all the same."""
    assert planned(name, view(1, homes={}, n0=1)) == Placement(slots=(), allowed=(), collector_nodes=("n0",))


@pytest.mark.parametrize(
    ("seen", "nodes"),
    [
        (view(2, n0=2, n1=2), ("n0", "n0")),
        (view(2, node="n1", n0=2, n1=2), ("n1", "n1")),
        # The master's node has room for one: two nodes, or one.
        (view(3, n0=1, n1=3, n2=4), ("n1", "n1", "n1")),
        # 5 = 4 + 1: the largest first, then the master's.
        (view(5, n0=1, n1=3, n2=4), ("n2", "n2", "n2", "n2", "n0")),
        # Who lives stays, and the others join it if they fit there.
        (view(3, before=("n0", "n9", "n1"), n0=1, n1=2), ("n0", "n1", "n1")),
        # Nodes in use before any other, though another one alone has the room; then the master's.
        (view(4, before=("n0", "n1"), n0=2, n1=2, n2=2), ("n0", "n1", "n0", "n1")),
        (view(3, before=("n1",), n0=3, n1=2), ("n1", "n1", "n0")),
        (view(2, before=("n0",), node="n1", n0=1, n1=1, n2=1), ("n0", "n1")),
        (view(3, before=("n2", "n2"), node="n1", n0=2, n1=1, n2=2), ("n2", "n2", "n1")),
        # Beyond what fits: all alike.
        (view(4, n0=1, n1=1), ("n0", "n1", "n0", "n1")),
        (view(2, n0=-1, n1=0), ("n0", "n1")),
    ],
)
def test_pack_uses_the_fewest_nodes(seen, nodes):
    """Worked by hand."""
    assert planned("pack", seen).collector_nodes == nodes


def test_pack_finds_a_home_where_the_collectors_are():
    """Though another slot is home to fewer; any slot if those nodes have none."""
    homes = {"n0/a": 2, "n0/b": 1, "n1/a": 0}
    assert planned("pack", view(2, homes=homes, n0=2, n1=1)).slots == ("n0/b",)
    assert planned("pack", view(2, homes={"n1/a": 0}, n0=2, n1=1)).slots == ("n1/a",)
    assert planned("pack", view(2, homes=homes, n0=2, n1=1)).allowed == ("n0/a", "n0/b", "n1/a")


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 20))
def test_pack_uses_as_few_nodes_as_possible(free, n):
    """No smaller set of nodes has the room; and none gets more than fits while all fit."""
    nodes = {f"n{i}": room for i, room in enumerate(free)}
    used = Counter(planned("pack", view(n, **nodes)).collector_nodes)
    assert used.total() == n
    if n <= sum(free):
        fewest = next(k for k in range(len(free) + 1) if sum(sorted(free, reverse=True)[:k]) >= n)
        assert len(used) == fewest
        assert all(nodes[node] >= count for node, count in used.items())


def test_without_a_node_nothing_can_be_placed():
    """Said by the planner's own words."""
    for name in NAMES:
        with pytest.raises(PlannerFailed, match="raised ValueError: nodes must hold a node for 1 collectors, got none"):
            planned(name, view(1))


GOOD = {"slots": ("n0/a",), "allowed": ("n0/a",), "collector_nodes": ("n0",)}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"collector_nodes": ()}, "collector_nodes must be 1 nodes, one per collector, got 0"),
        ({"collector_nodes": ("n7",)}, "collector_nodes must be among n0, n1, got 'n7'"),
        ({"slots": ("n7/a",)}, "slots and allowed must be live slots, got 'n7/a'"),
        ({"allowed": ("n7/a",)}, "slots and allowed must be live slots, got 'n7/a'"),
        ({"allowed": ("n1/a",)}, r"allowed must hold the slots of the gang, 'n0/a' is missing in \['n1/a'\]"),
        ({"slots": ()}, r"slots must be 1 different ones, one per learner, got \[\]"),
        ({"slots": ("n0/a",) * 2}, r"slots must be 1 different ones, one per learner, got \['n0/a', 'n0/a'\]"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(changes, problem, monkeypatch):
    """Nodes and slots must be there."""
    planner = PLACEMENT.build("first")
    monkeypatch.setattr(planner, "plan", lambda view: Placement(**GOOD | changes))
    with pytest.raises(PlannerFailed, match=f"placement planner first: {problem}"):
        PLACEMENT.ask(planner, view(1, n0=1, n1=1))


def test_a_plan_of_another_type_is_refused(monkeypatch):
    """What it is is shown."""
    planner = PLACEMENT.build("first")
    monkeypatch.setattr(planner, "plan", lambda view: "n0")
    with pytest.raises(PlannerFailed, match="a plan must be a Placement, got 'n0'"):
        PLACEMENT.ask(planner, view(1, n0=1, n1=1))


def test_a_plan_comes_back_from_the_journal():
    """From the decision's record."""
    said = {
        "expected_s": 2.0,
        "candidates": (Candidate("healthiest", ("n1/a",), 2.5, 1),),
        "weighed": (Weighed("n0/a", 1e-6, 0.75), Weighed("n1/a", 2e-6, 0.25)),
    }
    for by in ("", "nodes"):
        record = PlacementPlanned(task="", attempt=1, planner="own", allowed_by=by, gang_version=1, **GOOD, **said)
        of_planner = said | ({"allowed": ()} if by else {})
        assert PLACEMENT.recorded(view(1, n0=1), Answer([record])) == Placement(**GOOD | of_planner)
    assert PLACEMENT.recorded(view(1, n0=1), Answer()) is None


def _fewest(room, kept, n_left):
    """Count the nodes of the smallest set with the room that is left, those in use for nothing, by listing all sets."""
    for size in range(len(room) + 1):
        for more in itertools.combinations(sorted(set(room) - kept), size):
            if sum(room[node] for node in {*kept, *more}) >= n_left:
                return len(kept) + size
    return None


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.lists(st.sampled_from(["n0", "n1", "n2", "n3", "lost"]), max_size=6),
    st.integers(0, 8),
)
@example([2, 2, 2], ["n0", "n1"], 4)
def test_after_a_loss_only_those_move_that_must(rooms, before, n):
    """Collectors of nodes that live stay; together with the others they use the fewest nodes that have the room."""
    nodes = {f"n{i}": room for i, room in enumerate(rooms)}
    placement = planned("pack", view(n, before=tuple(before), **nodes)).collector_nodes
    stay = {i: node for i, node in enumerate(before[:n]) if node in nodes}
    assert all(placement[i] == node for i, node in stay.items())
    room = {node: max(0, free - list(stay.values()).count(node)) for node, free in nodes.items()}
    fewest = _fewest(room, set(stay.values()), n - len(stay))
    if fewest is not None:
        assert len(set(placement)) == fewest
        moved = Counter(node for i, node in enumerate(placement) if i not in stay)
        assert all(room[node] >= count for node, count in moved.items())


@given(
    st.dictionaries(st.sampled_from(["n0/a", "n0/b", "n1/a", "n2/a"]), st.integers(0, 3), min_size=1), st.integers(0, 5)
)
def test_a_home_is_home_to_no_more_tasks_than_any_it_could_have_been(homes, n):
    """With `first` any live slot could; with `pack` one of a node with a collector, if there is one."""
    seen = view(n, homes=homes, n0=2, n1=2, n2=2)
    assert homes[planned("first", seen).slots[0]] == min(homes.values())
    packed = planned("pack", seen)
    near = [count for slot, count in homes.items() if slot.partition("/")[0] in packed.collector_nodes]
    assert homes[packed.slots[0]] == min(near or homes.values())
