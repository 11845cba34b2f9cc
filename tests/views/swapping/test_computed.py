"""What the cost model says of a plan, drawn: a chain of three layers worked by hand."""

import pytest

from drlnb.fleet.whatif.swapping import Case, explain
from drlnb.planning.swapping.profile import BLOCK, DERIVE, SQUEEZE, SWAP, SwapBlock, SwapLink
from drlnb.views.swapping import computed
from tests.planning.swapping.swap_words import SECOND, acting, profile, row
from tests.views.swapping.test_measured import points

MIB = 2**20


def of_chain(*, budget_mib=40, blocks=(), pins=None, kinds=(), chosen=(), **actions):
    """Return what is said of a plan for three layers of 10 MiB: 1 s forward, 2 s backward, a copy takes 1 s."""
    rows = [row(f"l{i}", i - 1, i, size=10.0 * MIB, **kind) for i, kind in enumerate(kinds or ({}, {}, {}))]
    net = profile(rows, [SECOND] * 3, fixed_bytes=5.0 * MIB, link=SwapLink.of(10.0 * MIB), blocks=blocks)
    plan = acting(net, **actions)
    plan = plan if not chosen else type(plan)(profile_key=net.key, keys=plan.keys, actions=plan.actions, blocks=chosen)
    return explain(Case("net", net, 1, budget_mib and budget_mib * MIB, "hand", pins or {}), plan)


def test_rows_have_their_action_and_its_reason():
    """The first layer's input is free for 2 s forward and 4 s backward; two copies take 2 s."""
    view = computed.plan(of_chain(l0=SWAP, pins={"l0#0": "swap"}))
    assert view.rows() == [
        ["l0#0", "Linear", 10, "swap", 6, "gap 6 s, copies 2 s", "swap"],
        ["l1#0", "Linear", 10, "keep", 3, "it stays", ""],
        ["l2#0", "Linear", 10, "keep", 0, "it stays", ""],
    ]
    assert view.facts["actions"] == []
    assert view.sentence == (
        "net, hand: keep 2, swap 1; predicted 35.0 MiB of 40.0 MiB, 9.0 s a step, 1.00x of keeping all"
    )


@pytest.mark.parametrize(
    ("kind", "action", "why"),
    [
        ({"squeeze_kind": "mask", "squeeze_left_frac": 0.25}, SQUEEZE, "mask: 25% of its bytes stay"),
        ({"derive_from": ("l0", 0), "derive_s_per_sample": 0.5}, DERIVE, "made again from l0#0 in 500 ms"),
    ],
)
def test_what_is_not_swapped_says_what_it_costs(kind, action, why):
    """Squeezed: what stays; derived: from where, and how long that takes."""
    view = computed.plan(of_chain(kinds=({}, kind, {}), l1=action))
    assert view.rows()[1][3:6] == [action, 3, why]


def test_a_live_row_offers_what_it_is_not_pinned_to():
    """Bits of keep, swap and free: the pinned one is off, and free is off where nothing is pinned."""
    view = computed.plan(of_chain(l0=SWAP, pins={"l0#0": "swap", "l1#0": "keep", "l2#0": "derive"}), live=True)
    assert [action["name"] for action in view.facts["actions"]] == ["keep", "swap", "free"]
    assert view.columns["rows"]["can"].tolist() == [0b101, 0b110, 0b111]
    assert computed.plan(of_chain(), live=True).columns["rows"]["can"].tolist() == [0b011] * 3


def test_names_are_short_where_all_storages_are_of_one_module():
    """What all begin with stands in a note, once; whole modules only."""
    rows = [row(f"net.features.{name}", i - 1, i) for i, name in enumerate(("conv", "cols"))]
    net = profile(rows, [SECOND] * 2)
    view = computed.plan(explain(Case("net", net, 1, None, "hand"), acting(net)))
    assert [line[0] for line in view.rows()] == ["conv#0", "cols#0"]
    assert view.notes == ("storages of net.features",)


def test_lanes_have_every_piece_of_work_and_every_copy():
    """The first input leaves from 1 to 2 and is back from 3 to 4, as soon as the backward pass begins."""
    view = computed.lanes(of_chain(l0=SWAP))
    work = [["work", part, name, 1e3 * a, 1e3 * b] for part, name, a, b in (
        ("forward", "f0", 0, 1), ("forward", "f1", 1, 2), ("forward", "f2", 2, 3),
        ("backward", "b2", 3, 5), ("backward", "b1", 5, 7), ("backward", "b0", 7, 9),
    )]  # fmt: skip
    copies = [["copies out", "copied out", "l0#0", 1e3, 2e3], ["copies in", "copied in", "l0#0", 3e3, 4e3]]
    assert sorted(view.rows()) == sorted(work + copies)
    assert [mark["t"] for mark in view.facts["marks"]] == [3.0]
    assert view.facts["span"] == [0.0, 9.0]
    derived = of_chain(kinds=({}, {"derive_from": ("l0", 0), "derive_s_per_sample": 0.5}, {}), l1=DERIVE)
    assert ["work", "made again", "again l1#0", 5000, 5500] in computed.lanes(derived).rows()


def test_memory_within_a_step_stands_beside_budget_and_measured_peak():
    """Five MiB stay; input and result of a layer are 20 more; the first input is gone from 2 to 3 s."""
    of = of_chain(l0=SWAP)
    view = computed.memory(of)
    assert points(view, "predicted") == [
        (0, 25), (1000, 35), (2000, 25), (3000, 35), (5000, 25), (7000, 15), (9000, 15),
    ]  # fmt: skip
    assert points(view, "budget") == [(0, 40), (9000, 40)]
    assert (view.origin, view.value("peak"), view.value("plain"), view.value("stall")) == ("computed", 35, 35, 0)
    beside = computed.memory(of, 33.0 * MIB, "measured")
    assert points(beside, "peak, measured") == [(0, 33), (9000, 33)]
    assert beside.origin == "computed and measured"
    bare = computed.memory(of_chain(budget_mib=None))
    assert [line["label"] for line in bare.facts["lines"]] == ["predicted"]
    assert "without a budget" in bare.sentence


def test_bytes_of_a_layer_type_are_parted_by_action():
    """Two of type a: one stays, one leaves; one of type b is made again with its block."""
    kinds = ({"layer_type": "a"}, {"layer_type": "a"}, {"layer_type": "b"})
    block = SwapBlock(path="end", first_tick=2, last_tick=2, rows=(("l2", 0),))
    view = computed.types(of_chain(kinds=kinds, l0=SWAP, l2=BLOCK, blocks=(block,), chosen=("end",)))
    assert view.rows() == [["a", "keep", 10, 1], ["a", "swap", 10, 1], ["b", "block", 10, 1]]
    assert view.columns["bars"]["start"].tolist() == [0, 10, 0]
    assert view.columns["bars"]["stop"].tolist() == [10, 20, 10]


def test_many_layer_types_share_a_lane():
    """Seven have one of their own, the largest first."""
    rows = [row(f"l{i}", i - 1, i, size=float(i + 1), layer_type=f"t{i}") for i in range(9)]
    net = profile(rows, [SECOND] * 9)
    view = computed.types(explain(Case("net", net, 1, None, "hand"), acting(net)))
    assert [lane["label"] for lane in view.facts["lanes"]] == [*(f"t{i}" for i in range(8, 1, -1)), "others"]
    assert view.rows()[-1][3] == 2


def test_a_plan_that_does_not_fit_says_so():
    """In the sentence."""
    assert "of 30.0 MiB, which does not fit, " in of_chain(budget_mib=30).sentence


@pytest.mark.parametrize("draw", [computed.plan, computed.lanes, computed.memory, computed.types])
def test_a_net_that_saves_nothing_is_drawn_all_the_same(draw):
    """In every form."""
    net = profile([], [SECOND])
    view = draw(explain(Case("net", net, 1, None, "hand"), acting(net)))
    assert "nothing is saved" in view.sentence
    assert view.svg()
    assert set(view._repr_mimebundle_()) == {"text/plain", "text/html", "application/vnd.plotly.v1+json"}
