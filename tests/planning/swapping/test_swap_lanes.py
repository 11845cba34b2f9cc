"""What a prediction says of its lanes, checked by a reader that knows no cost model: order, durations and bytes."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.profile import BLOCK, DERIVE, KEEP, SQUEEZE, SWAP, SwapBlock, SwapLink, SwapPlan, Tick
from tests.planning.swapping.swap_words import SECOND, acting, chain, planned, profile, row, wide
from tests.strategies import fewer

NEAR = 1e-6


class Reading:
    """The lanes of one step, and from them when each row is on the device."""

    def __init__(self, of, plan, n=1, budget=None):
        self.of, self.plan, self.n = of, plan, n
        self.said = predict(of, plan, n, budget, lanes=True)
        self.work = {what: (start, end) for lane, what, start, end in self.said.lanes if lane == "compute"}
        self.out, self.back = (
            {what: (start, end) for lane, what, start, end in self.said.lanes if lane == name}
            for name in ("d2h", "h2d")
        )
        self.rows = {each.name: each for each in of.rows}
        self.block_of = {key: each for each in of.blocks if each.path in plan.blocks for key in each.rows}

    def action(self, each):
        return self.plan.action_of[each.key]

    def named(self, action):
        return [each for each in self.of.rows if self.action(each) == action]

    def forward(self, tick):
        return self.work[f"f{max(tick, 0)}"]

    def backward(self, tick):
        return self.work[f"b{tick}"]

    def turn(self):
        """Return when the forward pass is over."""
        return self.forward(len(self.of.ticks) - 1)[1]

    def need(self, each):
        """Return when the first work of the backward pass that reads a row begins."""
        needs = [self.backward(each.packed_ticks[-1])[0]]
        derived = [other.name for other in self.named(DERIVE) if other.derive_from == each.key]
        entered = [
            block.path
            for block in self.of.blocks
            if block.path in self.plan.blocks
            and each.born_tick < block.first_tick
            and set(range(block.first_tick, block.last_tick + 1)) & set(each.packed_ticks)
        ]
        return min(needs + [self.work[f"again {name}"][0] for name in derived + entered])

    def stays(self):
        """Yield (bytes, from, until) of each time that a row, or a part of it, is on the device for certain."""
        for each in self.of.rows:
            size, action = each.bytes(self.n), self.action(each)
            made, used = self.forward(each.born_tick)[0], self.forward(each.packed_ticks[-1])[1]
            freed = self.backward(each.packed_ticks[0])[1]
            if action == KEEP:
                yield size, made, freed
            elif action == SWAP:
                yield size, made, self.out[each.name][1]
                yield size, self.back[each.name][0], freed
            else:
                yield size, made, used
            if action == SQUEEZE:
                yield size * each.squeeze_left_frac, used, freed
                for tick in each.packed_ticks:
                    yield size, *self.backward(tick)
            elif action == DERIVE:
                yield size, self.work[f"again {each.name}"][0], freed
            elif action == BLOCK:
                yield size, self.work[f"again {self.block_of[each.key].path}"][0], freed

    def transients(self):
        """Yield the bytes beside rows of each piece of work, with its times."""
        for i, tick in enumerate(self.of.ticks):
            yield self.amount(tick.forward_transient_bytes), *self.forward(i)
            yield self.amount(tick.backward_transient_bytes), *self.backward(i)
        for block in self.of.blocks:
            if block.path in self.plan.blocks:
                ticks = self.of.ticks[block.first_tick : block.last_tick + 1]
                most = max(self.amount(tick.forward_transient_bytes) for tick in ticks)
                yield most, *self.work[f"again {block.path}"]

    def amount(self, pair):
        return pair[0] + pair[1] * self.n

    def peak(self):
        """Return the most bytes at one instant, by a sweep over all beginnings and ends."""
        spans = [each for each in (*self.stays(), *self.transients()) if each[2] > each[1]]
        instants = sorted({start for _, start, _ in spans})
        return max(sum(size for size, start, end in spans if start <= t + NEAR < end) for t in instants)


# ------------------------------------------------------------------ the reader itself
def test_the_reader_counts_three_layers():
    """By hand: 30 bytes at the turn without a plan; all swapped, while the first row leaves the other two are there."""
    kept = Reading(chain(), SwapPlan.keeping(chain()))
    assert (kept.peak(), kept.turn(), kept.need(chain().rows[1])) == (30.0, 3.0, 5.0)
    swapped = Reading(chain(), acting(chain(), l0=SWAP, l1=SWAP, l2=SWAP))
    assert swapped.peak() == 30.0
    assert sum(size for size, start, end in swapped.stays() if start <= 2.5 < end) == 20.0
    assert swapped.out["l0#0"] == (1.0, 2.0)
    assert swapped.back["l0#0"] == (6.0, 7.0)


def test_the_reader_knows_what_is_read_early():
    """The source of a derived row, and what enters a block that is made again, are needed before their own ticks."""
    of = wide(4)
    derived = Reading(of, acting(of, l0=SWAP, l1=DERIVE))
    assert (
        derived.need(of.rows[0]) == derived.work["again l1#0"][0] or derived.need(of.rows[0]) == derived.backward(3)[0]
    )
    rows = [row("l0", -1, 0), row("l1", 0, 1), row("l2", 1, 2), row("l3", 2, 3)]
    block = SwapBlock(path="part", first_tick=1, last_tick=2, rows=(("l2", 0),))
    four = profile(rows, [SECOND] * 4, blocks=(block,))
    made_again = Reading(four, replace(acting(four, l2=BLOCK), blocks=("part",)))
    assert made_again.need(four.rows[1]) == made_again.work["again part"][0] == 6.0


# ------------------------------------------------------------------ order
@fewer(2)
@given(planned(), st.integers(1, 3), st.none() | st.floats(20.0, 300.0))
def test_each_tick_is_worked_once_each_way(pair, n, room):
    """Forward upwards, then backward downwards, each as long as the profile says, whatever the plan and the room."""
    of, plan = pair
    read = Reading(of, plan, n, room and room + of.fixed_bytes)
    names = [what for lane, what, _, _ in read.said.lanes if lane == "compute"]
    ticks = range(len(of.ticks))
    expected = [f"f{i}" for i in ticks] + [f"b{i}" for i in reversed(ticks)]
    assert [name for name in names if not name.startswith("again")] == expected
    assert max(Counter(names).values()) == 1
    for i, tick in enumerate(of.ticks):
        for (start, end), seconds in ((read.forward(i), tick.forward_s), (read.backward(i), tick.backward_s)):
            assert end - start == pytest.approx(read.amount(seconds))


@fewer(2)
@given(planned(), st.none() | st.floats(20.0, 300.0))
def test_what_stands_still_is_said(pair, room):
    """Gaps between pieces of work are the stalls that are told, and nothing else."""
    of, plan = pair
    read = Reading(of, plan, 1, room and room + of.fixed_bytes)
    work = sorted(read.work.values())
    gaps = [after[0] - before[1] for before, after in pairwise(work)]
    assert min(gaps, default=0.0) >= -NEAR
    assert sum(gaps) == pytest.approx(read.said.stall_s, abs=NEAR)
    assert work[-1][1] == pytest.approx(read.said.step_s)
    assert all(seconds > 0.0 for _, _, seconds in read.said.stalls)


@fewer(2)
@given(planned(), st.integers(1, 3), st.none() | st.floats(20.0, 300.0))
def test_what_is_swapped_leaves_once_and_is_back_in_time(pair, n, room):
    """After its last use forward, back after it has left, and there before whatever reads it begins."""
    of, plan = pair
    read = Reading(of, plan, n, room and room + of.fixed_bytes)
    swapped = read.named(SWAP)
    assert {each.name for each in swapped} == set(read.out) == set(read.back)
    speed = of.link.d2h[0][1]
    for each in swapped:
        (left, gone), (begins, there) = read.out[each.name], read.back[each.name]
        assert left >= read.forward(each.packed_ticks[-1])[1] - NEAR
        assert begins >= max(gone, read.turn()) - NEAR
        assert there <= read.need(each) + NEAR
        assert gone - left == pytest.approx(each.bytes(n) / speed)
        assert there - begins == pytest.approx(each.bytes(n) / speed)


@fewer(2)
@given(planned())
def test_copies_come_back_in_the_order_in_which_they_are_needed(pair):
    """A row that is needed by an earlier tick is never behind one that a later tick needs."""
    of, plan = pair
    read = Reading(of, plan)
    back = sorted(read.named(SWAP), key=lambda each: read.back[each.name][0])
    waited = [read.back[each.name][1] for each in back]
    assert waited == sorted(waited)
    begins = sorted(read.backward(i)[0] for i in range(len(of.ticks)))
    ticks = [
        next(t for t in begins if t >= read.need(each) - NEAR) for each in back
    ]  # what a tick makes again is its own
    assert ticks == sorted(ticks)


@fewer(2)
@given(planned())
def test_what_is_made_again_is_made_from_what_is_there(pair):
    """A derived row between its source's return and its own need; a block after what enters it."""
    of, plan = pair
    read = Reading(of, plan)
    for each in read.named(DERIVE):
        source = read.rows["{}#{}".format(*each.derive_from)]
        start, end = read.work[f"again {each.name}"]
        assert end - start == pytest.approx(each.derive_s_per_sample)
        assert end <= read.backward(each.packed_ticks[-1])[0] + NEAR
        if read.action(source) == SWAP:
            assert read.back[source.name][1] <= start + NEAR
        assert read.backward(source.packed_ticks[0])[1] >= end - NEAR, "its source is still there"
    for block in of.blocks:
        if block.path in plan.blocks:
            start, end = read.work[f"again {block.path}"]
            ticks = of.ticks[block.first_tick : block.last_tick + 1]
            assert end - start == pytest.approx(sum(read.amount(tick.forward_s) for tick in ticks))
            assert read.turn() - NEAR <= start
            assert end <= read.backward(block.last_tick)[0] + NEAR


# ------------------------------------------------------------------ bytes
@fewer(2)
@given(planned(actions=(KEEP, SQUEEZE, DERIVE)), st.integers(1, 3))
def test_without_copies_the_peak_is_that_of_a_sweep(pair, n):
    """Kept, squeezed and derived rows, with transients: the same bytes as counted from the lanes."""
    of, plan = pair
    read = Reading(of, plan, n)
    assert read.said.peak_bytes - of.fixed_bytes == pytest.approx(read.peak())


@fewer(2)
@given(planned(), st.integers(1, 2), st.none() | st.floats(20.0, 400.0))
def test_no_instant_holds_more_than_is_said(pair, n, room):
    """Whatever the plan: copies that wait for room are counted early, never late."""
    of, plan = pair
    read = Reading(of, plan, n, room and room + of.fixed_bytes)
    assert read.peak() <= read.said.peak_bytes - of.fixed_bytes + NEAR
    if room and read.said.fits:
        assert read.peak() <= room + NEAR


@fewer(2)
@given(planned(actions=(KEEP, SWAP)), st.floats(0.0, 1.0))
def test_a_budget_between_is_kept_or_told(pair, share):
    """Between what must be there and what plain takes, a plan fits exactly if its own peak is within."""
    of, plan = pair
    plain = predict(of, SwapPlan.keeping(of), 1).peak_bytes
    budget = of.fixed_bytes + share * (plain - of.fixed_bytes)
    said = predict(of, plan, 1, budget)
    assert said.fits == (said.peak_bytes <= budget) or abs(said.peak_bytes - budget) < NEAR, "but for rounding"
    assert said.peak_bytes <= plain + NEAR


# ------------------------------------------------------------------ by hand
def test_a_swapped_row_that_is_packed_twice_stays_until_its_second_use():
    """Made by the first layer, read by the second and the fourth: it leaves from 4 to 5 and is back from 5 to 6."""
    rows = [row("l0", -1, 0), row("skip", 0, 1, 3), row("l2", 1, 2), row("l3", 2, 3)]
    of = profile(rows, [SECOND] * 4)
    read = Reading(of, acting(of, skip=SWAP))
    assert read.out["skip#0"] == (4.0, 5.0)
    assert read.back["skip#0"] == (5.0, 6.0)
    assert read.said.stalls == (("backward", 3, 2.0),)
    assert read.peak() == read.said.peak_bytes == 40.0
    assert max(end for size, _, end in read.stays() if size == 10.0) == read.backward(0)[1] == 14.0


def test_copies_that_queue_behind_each_other():
    """Four rows of four seconds each on one link: the last has left at 17, the first is back at 33."""
    of = chain(4, link=SwapLink.of(2.5))
    read = Reading(of, acting(of, l0=SWAP, l1=SWAP, l2=SWAP, l3=SWAP))
    assert [read.out[f"l{i}#0"] for i in range(4)] == [(1.0, 5.0), (5.0, 9.0), (9.0, 13.0), (13.0, 17.0)]
    assert [read.back[f"l{i}#0"] for i in (3, 2, 1, 0)] == [(17.0, 21.0), (21.0, 25.0), (25.0, 29.0), (29.0, 33.0)]
    assert read.said.stalls == (
        ("backward", 3, 17.0), ("backward", 2, 2.0), ("backward", 1, 2.0), ("backward", 0, 2.0),
    )  # fmt: skip
    assert read.said.step_s == 35.0
    assert read.said.hidden_frac == pytest.approx(1 - 23 / 32)


def test_a_small_budget_holds_copies_back_and_a_large_one_does_not():
    """With room for two rows, the next one comes when one was freed; with room for all, when the link is free."""
    of = chain(4, link=SwapLink.of(20.0))
    plan = acting(of, l0=SWAP, l1=SWAP, l2=SWAP, l3=SWAP)
    wide_open, narrow = Reading(of, plan), Reading(of, plan, budget=20.0)
    assert [wide_open.back[f"l{i}#0"][0] for i in (3, 2, 1, 0)] == [4.5, 5.0, 5.5, 6.0]
    assert narrow.said.fits
    assert narrow.peak() <= 20.0
    assert [narrow.back[f"l{i}#0"][0] for i in (3, 2)] == [5.5, 6.0], "the forward pass waited, too"
    assert narrow.back["l1#0"][0] >= narrow.backward(3)[1]
    assert narrow.back["l0#0"][0] >= narrow.backward(2)[1]


@pytest.mark.parametrize(("n_bytes", "comes_at", "stall_s"), [(0.0, 3.0, 0.0), (10.0, 5.0, 0.0), (20.0, 7.0, 1.0)])
def test_transients_leave_less_room_for_what_comes_back(n_bytes, comes_at, stall_s):
    """Of 30 bytes, two rows and what a backward tick needs for itself leave room at once, a tick later, or never."""
    heavy = Tick(forward_s=(1.0, 0.0), backward_s=(2.0, 0.0), backward_transient_bytes=(n_bytes, 0.0))
    of = profile([row(f"l{i}", i - 1, i) for i in range(3)], [SECOND, heavy, SECOND])
    read = Reading(of, acting(of, l0=SWAP), budget=30.0)
    assert read.back["l0#0"][0] == comes_at
    assert read.said.stall_s == stall_s
    assert read.said.fits


def test_a_squeezed_row_in_a_step_that_swaps_others():
    """A quarter stays while the others are away; the widened row and the returned one meet in its own tick."""
    rows = [row("l0", -1, 0), row("l1", 0, 1, squeeze_kind="mask", squeeze_left_frac=0.25), row("l2", 1, 2)]
    of = profile(rows, [SECOND] * 3, link=SwapLink.of(20.0))
    read = Reading(of, acting(of, l0=SWAP, l1=SQUEEZE))
    assert read.out["l0#0"] == (1.0, 1.5)
    assert read.back["l0#0"] == (3.0, 3.5)
    # in the backward tick of l1: a quarter of l1 and all of it beside, and l0
    assert sum(size for size, start, end in read.stays() if start <= 5.0 < end) == 22.5
    assert sum(size for size, start, end in read.stays() if start <= 2.5 < end) == 12.5, "l1 was read, l2 is"
    assert sum(size for size, start, end in read.stays() if start <= 3.5 < end) == 22.5, "l2, a quarter of l1, and l0"


def test_two_blocks_are_made_again_one_after_the_other():
    """Each before its own last tick; while one is there, the other one is not."""
    of = wide(6)
    plan = replace(acting(of, l2=BLOCK, l4=BLOCK), blocks=("b1", "b3"))
    read = Reading(of, plan)
    first, second = read.work["again b3"], read.work["again b1"]
    assert first == (8.0, 10.0)
    assert second == (14.0, 16.0)
    assert read.said.step_s == 6 * 3.0 + 4.0
    at_turn = [size for size, start, end in read.stays() if start <= read.turn() + 0.5 < end]
    assert sum(at_turn) == 40.0, "of six rows, two are away"
