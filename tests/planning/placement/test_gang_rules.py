"""Which slots a gang gets: worked by hand on two nodes of four slots, and laws of all rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.placement import GANGS, Cluster, ClusterView, JobView, Pick, Terms
from drlnb.planning.placement.order import job_window, order_of
from drlnb.planning.registry import PlannerFailed
from drlnb.records.errors import ConfigError

#: Rates of eight slots on two nodes: the second node is healthier by its best two, the first one by its best three.
RATES = (1.0, 2.0, 2.0, 9.0, 0.5, 0.5, 8.0, 8.0)


def job(n_slots, work_s=3600.0, name="a", **more):
    return JobView(job=name, n_slots=n_slots, work_s=work_s, **more)


def seen(*window, busy=(), rates=RATES, nodes=(4, 4), **more):
    node_of = tuple(node for node, n in enumerate(nodes) for _ in range(n))
    state = tuple("busy" if slot in busy else "free" for slot in range(len(node_of)))
    rate_hz = tuple(1e-6 * rate for rate in rates)
    return ClusterView(cluster=Cluster(node_of), state=state, rate_hz=rate_hz, window=window, **more)


def slots(name, view):
    pick = GANGS.ask(GANGS.build(name), view)
    return None if pick is None else pick.slots


@pytest.mark.parametrize(
    ("rule", "n_slots", "busy", "expected"),
    [
        ("first", 2, (0,), (1, 2)),
        # The node whose free slots are filled best; the first of two alike.
        ("best_fit", 2, (0,), (1, 2)),
        ("best_fit", 2, (0, 5, 6), (4, 7)),
        ("best_fit", 3, (), (0, 1, 2)),
        # No node holds five: all of the emptiest, and the rest where it fits best.
        ("best_fit", 5, (), (0, 1, 2, 3, 4)),
        ("best_fit", 5, (0,), (1, 4, 5, 6, 7)),
        ("healthiest", 3, (), (0, 4, 5)),
        ("healthiest", 3, (4,), (0, 1, 5)),
        # One node alone: 0.5 + 0.5 against 1 + 2; 1 + 2 + 2 against 0.5 + 0.5 + 8.
        ("healthiest_packed", 2, (), (4, 5)),
        ("healthiest_packed", 3, (), (0, 1, 2)),
        ("healthiest_packed", 6, (0,), (1, 2, 4, 5, 6, 7)),
        ("interference_aware", 2, (), (4, 5)),
    ],
)
def test_by_hand(rule, n_slots, busy, expected):
    """Ties go to the first slot and the first node."""
    assert slots(rule, seen(job(n_slots), busy=busy)) == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("best_fit", (0, 1, 2, 3, 4, 5)), ("healthiest_packed", (0, 1, 4, 5, 6, 7)), ("ect", (0, 1, 4, 5, 6, 7))],
)
def test_of_two_empty_nodes_the_healthier_one_is_filled(rule, expected):
    """A gang of six fills one of two nodes of four: 1 + 2 + 2 + 9 against 0.5 + 0.5 + 8 + 8; who is blind the first."""
    assert slots(rule, seen(job(6), rates=(*RATES[4:], *RATES[:4]))) == expected


def test_quiet_nodes_before_healthy_ones():
    """A gang on more than one node talks on its nodes: the others are taken while they hold the gang."""
    assert slots("interference_aware", seen(job(2), n_wide=(0, 1))) == (0, 1)
    assert slots("interference_aware", seen(job(5), n_wide=(0, 1))) == (0, 1, 2, 3, 4)
    # What it holds stays, on a noisy node, too: nodes in use come first.
    assert slots("interference_aware", seen(job(3, kept=(7,)), busy=(7,), n_wide=(0, 1))) == (7, 4, 5)


@pytest.mark.parametrize("rule", ["best_fit", "healthiest_packed"])
def test_who_holds_slots_gets_others_on_their_nodes(rule):
    """The gang's own node is filled before another one."""
    assert slots(rule, seen(job(3, kept=(3,)), busy=(3,)))[0] == 3
    assert slots(rule, seen(job(3, kept=(3,)), busy=(1, 2, 3))) == (3, 0, 4)


def test_random_takes_any_slots_and_the_same_again():
    """Each set comes, each seed is a way of its own."""
    many = {slots(f"random:seed={seed}", seen(job(2, name=str(i)))) for seed in range(8) for i in range(60)}
    assert len(many) == 28  # all pairs of eight
    assert slots("random:seed=3", seen(job(2), t=1.5)) == slots("random:seed=3", seen(job(2), t=1.5))


def ect(locality, *, rates=RATES, work_s=86_400.0, n_slots=3, **more):
    return slots("ect", seen(job(n_slots, work_s), rates=rates, terms=Terms(locality_frac=locality, **more)))


def test_ect_scatters_where_that_is_free_and_health_counts():
    """Rates of one failure in minutes: the healthiest slots, unless another node costs more than they save."""
    rates = tuple(100 * rate for rate in RATES)
    assert ect(0.0, rates=rates, checkpoint_s=None) == (0, 4, 5)
    assert ect(5.0, rates=rates, checkpoint_s=None) == (0, 1, 2)


def test_ect_packs_where_a_gain_is_below_two_percent():
    """With hourly checkpoints failures cost next to nothing: the node that is filled best, and its healthiest slots."""
    assert ect(0.0) == (0, 1, 2)
    assert ect(0.0, rates=(9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)) == (1, 2, 3)


def test_a_gang_on_more_nodes_than_it_needs_is_slower():
    """Four more nodes at most are counted; the least is by the largest nodes."""
    assert Cluster.uniform(2, 4) == Cluster((0,) * 4 + (1,) * 4)
    assert Cluster.uniform(2, 4).n_slots == 8
    view = seen(job(2), nodes=(1, 1, 1, 1, 1, 1, 2), rates=(1.0,) * 8, terms=Terms(locality_frac=0.1))
    assert view.cluster.least_nodes(2) == 1
    assert view.cluster.least_nodes(9) == 7
    assert view.slowdown((6, 7), 2) == 1.0
    assert view.slowdown((0, 1), 2) == pytest.approx(1.1)
    assert view.slowdown((0, 1, 2, 3, 4, 5), 2) == pytest.approx(1.4)


def test_an_empty_window_is_waited_for():
    """Nothing fits: nothing is picked."""
    assert slots("ect", seen()) is None


RULES = st.sampled_from(GANGS.names)


@given(RULES, st.data())
def test_a_rule_gives_free_slots_as_many_as_are_missing(rule, data):
    """Whatever is busy and held; the same view gives the same slots."""
    n_nodes, n_each = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    n = n_nodes * n_each
    busy = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    kept = tuple(data.draw(st.lists(st.sampled_from(sorted(busy)), unique=True, max_size=2)) if busy else ())
    n_slots = len(kept) + data.draw(st.integers(0 if kept else 1, n - len(busy)))
    rates = tuple(data.draw(st.lists(st.floats(0.1, 10), min_size=n, max_size=n)))
    wide = tuple(data.draw(st.lists(st.integers(0, 2), min_size=n_nodes, max_size=n_nodes)))
    view = seen(job(n_slots, kept=kept), busy=busy, rates=rates, nodes=(n_each,) * n_nodes, n_wide=wide)
    given = slots(rule, view)
    assert given == slots(rule, view)
    assert len(set(given)) == n_slots
    assert given[: len(kept)] == kept
    assert not busy & set(given[len(kept) :])


@given(st.permutations(range(8)), st.integers(1, 8))
def test_numbers_of_slots_do_not_count(order, n_slots):
    """Slots that are renumbered within their cluster give the same choice, up to ties: rates of all slots differ."""
    rates = (1.0, 2.0, 3.5, 9.0, 0.5, 0.6, 8.0, 8.1)
    nodes = [0, 0, 0, 0, 1, 1, 1, 1]
    plain = seen(job(n_slots), rates=rates)
    shuffled = ClusterView(
        cluster=Cluster(tuple(nodes[k] for k in order)),
        state=("free",) * 8,
        rate_hz=tuple(1e-6 * rates[k] for k in order),
        window=plain.window,
    )
    assert {order[slot] for slot in slots("healthiest", shuffled)} == set(slots("healthiest", plain))
    assert {order[slot] for slot in slots("healthiest_packed", shuffled)} == set(
        slots("healthiest_packed", plain)
    ) or n_slots > 4


# -------------------------------------------------------------------- what a plan must be
class Own:
    """Answers what it was given."""

    name = "mine"

    def __init__(self, answer):
        self.plan = lambda view: answer


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ((0, 1), "a plan must be a Pick, or None to wait, got (0, 1)"),
        (Pick("b", (0, 1)), "job must be one of a, got 'b'"),
        (Pick("a", (0,)), "job a needs 2 different slots, got [0]"),
        (Pick("a", (4, 4)), "job a needs 2 different slots, got [4, 4]"),
        (Pick("a", (0, 9)), "job a is given slot 9: they are 0..7"),
        (Pick("a", (0, "1")), "job a is given slot '1': they are 0..7"),
        (Pick("a", (0, 3)), "job a is given slot 3, which is busy"),
    ],
)
def test_a_plan_that_does_not_fit(answer, line):
    """One line with planner, job, slots and state."""
    with pytest.raises(PlannerFailed) as error:
        GANGS.ask(Own(answer), seen(job(2), busy=(3,)))
    assert str(error.value) == f"gangs planner mine: {line}"


def test_a_gang_keeps_its_slots():
    """A plan adds to them."""
    with pytest.raises(PlannerFailed, match=r"job a keeps its slots \[3\], 3 is missing in \[0, 1\]"):
        GANGS.ask(Own(Pick("a", (0, 1))), seen(job(2, kept=(3,)), busy=(3,)))
    assert GANGS.ask(Own(None), seen(job(2))) is None


# -------------------------------------------------------------------- order and window
def test_the_largest_first():
    """Slots times seconds; jobs alike stay in the queue's order."""
    jobs = [job(1, 100, "a"), job(4, 50, "b"), job(2, 100, "c"), job(8, 1, "d")]
    assert [each.job for each in order_of("largest")(jobs)] == ["b", "c", "a", "d"]
    assert order_of("fifo")(jobs) == jobs


def test_an_order_that_there_is_not():
    """The line names those that there are."""
    with pytest.raises(ConfigError, match="order must be one of fifo, largest, got 'lagest'"):
        order_of("lagest")


def test_a_window_has_heads_and_the_largest():
    """Four of each; a job stands once."""
    jobs = [job(1, work_s, str(i)) for i, work_s in enumerate([1, 2, 3, 4, 5, 9, 7, 6, 8, 1])]
    assert [each.job for each in job_window(jobs)] == ["0", "1", "2", "3", "5", "8", "6", "7"]
    assert job_window(jobs[:3]) == tuple(jobs[:3])
