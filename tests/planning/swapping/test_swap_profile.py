"""What a step saves and plans for it: keys, JSON, the patent's array, and which plans can be carried out."""

import json
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given

from drlnb.planning.codec import from_plain
from drlnb.planning.swapping.profile import (
    ACTIONS,
    BLOCK,
    DERIVE,
    KEEP,
    SQUEEZE,
    SWAP,
    SavedRow,
    SwapBlock,
    SwapLink,
    SwapPlan,
    SwapProfile,
    facts,
    read,
    written,
)
from drlnb.planning.swapping.table import plan_rows, plan_table
from drlnb.records.base import Record
from drlnb.records.columns.swapping import ApplySwapPlan, SwapProfileTaken
from tests.planning.swapping.swap_words import SECOND, acting, chain, having, planned, profile, profiles, row, wide
from tests.strategies import fewer


# ------------------------------------------------------------------ profiles
def test_a_row_knows_its_size_its_name_and_what_can_be_done_with_it():
    """Bytes are a + b B; squeezing and deriving are there only where they are exact."""
    plain = SavedRow(
        key=("net.conv1", 2), layer_type="Conv2d", bytes_per_sample=4.0, bytes_fixed=3.0, born_tick=0, packed_ticks=(0,)
    )
    assert (plain.name, plain.bytes(5), plain.actions) == ("net.conv1#2", 23.0, (KEEP, SWAP))
    assert replace(plain, squeeze_kind="void").actions == (KEEP, SWAP, SQUEEZE)
    assert replace(plain, derive_from=("x", 0)).actions == (KEEP, SWAP, DERIVE)
    with pytest.raises(FrozenInstanceError):
        plain.born_tick = 1


def test_a_profile_names_rows_and_types_in_order():
    """Types in the order of their first row."""
    of = profile(
        [row("c", 0, 1, layer_type="b"), row("a", 0, 1, layer_type="a"), row("d", 0, 1, layer_type="b")], [SECOND] * 2
    )
    assert of.number == {("c", 0): 0, ("a", 0): 1, ("d", 0): 2}
    assert of.types == ("b", "a")


def test_the_key_of_a_profile_is_that_of_what_is_saved():
    """Times, sizes and link may be measured anew: plans stay plans for it; another device is another profile."""
    of = chain()
    assert len(of.key) == 12
    assert replace(of, link=SwapLink.of(1.0), ticks=of.ticks[:2], slack_frac=0.5).key == of.key
    assert len({of.key, chain(2).key, replace(of, device_kind="b").key, replace(of, shape_key="b").key}) == 4


@fewer(4)
@given(profiles())
def test_a_profile_comes_back_from_its_json(of):
    """And from the record that holds it, through a line of a journal."""
    assert read(SwapProfile, written(of)) == of
    event = SwapProfileTaken(t=1.0, profile=facts(of), n_samples=3)
    again = Record.from_row(json.loads(json.dumps(event.to_row())))
    assert again == event
    assert from_plain(SwapProfile, again.profile) == of


# ------------------------------------------------------------------ plans
def test_a_plan_that_changes_nothing_has_no_key():
    """Whatever rows it is of; every other plan has one of its own."""
    kept = SwapPlan.keeping(chain())
    assert (kept.key, SwapPlan.keeping().key) == (None, None)
    others = [acting(chain(), l0=SWAP), acting(chain(), l1=SWAP), acting(chain(), l1=SQUEEZE)]
    others.append(replace(kept, blocks=("b",)))
    assert len({plan.key for plan in others}) == 4
    assert None not in {plan.key for plan in others}


@fewer(4)
@given(planned())
def test_a_plan_comes_back_from_its_json(pair):
    """And from its command; it can be carried out."""
    of, plan = pair
    assert plan.problem(of) == ""
    assert read(SwapPlan, written(plan)) == plan
    command = ApplySwapPlan(plan_key="p", plan=facts(plan))
    again = Record.from_row(json.loads(json.dumps(command.to_row())))
    assert again == command
    assert from_plain(SwapPlan, again.plan) == plan
    assert having(SwapPlan.keeping(of), plan.action_of).actions == plan.actions


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "a SwapPlan must be a JSON object, got list"),
        ("{}", "snapshot of SwapPlan: no field"),
        ('{"a": 1}', "snapshot of SwapPlan"),
        ("no json", "Expecting value"),
    ],
)
def test_what_is_no_plan_is_refused(text, problem):
    """In a line."""
    with pytest.raises(ValueError, match=problem) as caught:
        read(SwapPlan, text)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------ what cannot be
def blocked(*actions, blocks=("b1",)):
    of = wide(6)
    return of, SwapPlan(profile_key=of.key, keys=tuple(of.number), actions=actions, blocks=blocks)


def test_a_block_holds_all_its_rows_and_no_other():
    """A row within is of action block, a row outside is not; no row lies in two."""
    of, good = blocked(KEEP, KEEP, BLOCK, KEEP, KEEP, KEEP)
    assert good.problem(of) == ""
    assert having(good, {("l2", 0): KEEP}).problem(of).startswith("l2#0: a row is of action block if and only if")
    assert having(good, {("l3", 0): BLOCK}).problem(of).startswith("l3#0: a row is of action block if and only if")
    assert replace(good, blocks=("b1", "b9")).problem(of) == "there is no block 'b9'"
    twin = replace(
        of, blocks=(*of.blocks, SwapBlock(path="all", first_tick=1, last_tick=5, rows=(("l2", 0), ("l3", 0))))
    )
    both = replace(having(good, {("l3", 0): BLOCK}), blocks=("b1", "all"))
    assert both.problem(twin) == "blocks b1, all overlap"


def test_nothing_is_derived_from_what_is_not_there():
    """From a row that is kept or swapped, never from one that is derived, squeezed or in a block (trap of chains)."""
    of = wide(4)
    assert acting(of, l1=DERIVE).problem(of) == ""
    assert acting(of, l0=SWAP, l1=DERIVE).problem(of) == ""
    rows = [of.rows[0], of.rows[1], replace(of.rows[2], derive_from=("l1", 0)), of.rows[3]]
    twice = replace(of, rows=tuple(rows))
    problem = acting(twice, l1=DERIVE, l2=DERIVE).problem(twice)
    assert problem == "l2#0: it cannot be derived but from a row that is kept or swapped"
    assert "l2#0" in acting(of, l2=DERIVE).problem(of), "it has no source at all"
    lost = replace(of, rows=(replace(of.rows[0], derive_from=("gone", 0)), *of.rows[1:]))
    assert "l0#0" in acting(lost, l0=DERIVE).problem(lost)


def test_only_what_is_exact_is_squeezed():
    """A row without a smaller form is kept, swapped or derived."""
    of = wide(4)
    assert acting(of, l2=SQUEEZE).problem(of) == ""
    assert acting(of, l1=SQUEEZE).problem(of) == "l1#0: it cannot be squeezed"


def test_pins_are_obeyed():
    """Whatever row they name; those of rows that are not there bind nobody."""
    of = wide(4)
    pins = {"l1#0": SWAP, "gone#3": KEEP}
    assert acting(of, l1=SWAP).problem(of, pins) == ""
    assert acting(of, l0=SWAP).problem(of, pins) == "l1#0: it is pinned to swap, got keep"


def test_a_plan_is_of_all_rows_and_of_one_part_or_more():
    """One action for each row, in the order of the profile."""
    of = chain()
    kept = SwapPlan.keeping(of)
    assert replace(kept, actions=kept.actions[:2]).problem(of) == "the plan is of 3 rows, not of the 3 of net"
    assert replace(kept, keys=kept.keys[::-1]).problem(of) == "the plan is of 3 rows, not of the 3 of net"


# ------------------------------------------------------------------ tables
def test_a_table_says_what_is_done_with_each_row_and_why():
    """Its gap is the time from its last use to its next one; copies are both ways."""
    of, _ = blocked()
    plan = replace(acting(of, l0=SWAP, l1=DERIVE, l2=BLOCK, l4=SQUEEZE), blocks=("b1",))
    assert plan.problem(replace(of)) == ""
    rows = plan_rows(of, plan, 1)
    assert [each["action"] for each in rows] == [SWAP, DERIVE, BLOCK, KEEP, SQUEEZE, KEEP]
    assert [each["gap_s"] for each in rows] == [0.0, 12.0, 9.0, 6.0, 3.0, 0.0]
    assert [each["why"] for each in rows] == [
        "gap 0 s, copies 2 s",
        "made again from l0#0 in 200 ms",
        "b1 is made again in 2 s",
        "it stays",
        "mask: 25% of its bytes stay",
        "it stays",
    ]
    title, *lines = plan_table(of, plan, 2**20).splitlines()
    assert title.split() == ["layer", "type", "MiB", "gap", "action", "why"]
    assert lines[1].split()[:6] == ["l1#0", "b", "10.00", "12", "s", "derive"]
    assert set(ACTIONS) == {each["action"] for each in rows}
