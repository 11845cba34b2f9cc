"""The cost model beside a second one that is made differently: events on a heap, bytes counted at every instant.

The reference knows plans of KEEP, SWAP and DERIVE in steps without a budget, and counts bytes afterwards from the
intervals in which each row is there.
"""

import heapq
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.profile import DERIVE, KEEP, SWAP, SwapLink, SwapPlan
from tests.planning.swapping.swap_words import acting, chain, planned, wide
from tests.strategies import fewer


class Reference:
    """One step by events: ticks wait for what they need, copies for their lane and for what they copy."""

    def __init__(self, profile, plan, n_samples):
        self.rows = {row.key: row for row in profile.rows}
        self.plan, self.profile, self.n = plan, profile, n_samples
        self.size = {key: row.bytes(n_samples) for key, row in self.rows.items()}
        speed = profile.link.d2h[0][1]
        self.copy_s = {key: size / speed for key, size in self.size.items()}
        self.swapped = [key for key, action in plan.action_of.items() if action == SWAP]
        self.derived = [key for key, action in plan.action_of.items() if action == DERIVE]
        #: Tick of the backward pass before which a row must be there.
        self.need = {key: row.packed_ticks[-1] for key, row in self.rows.items()}
        for key in self.derived:
            source = self.rows[key].derive_from
            self.need[source] = max(self.need[source], self.need[key])
        #: (bytes, from, until) of each stay of a row on the device.
        self.stays = []
        self.step_s = self._run()

    def _run(self):
        ends, t = {}, 0.0
        begun = {}
        for i, tick in enumerate(self.profile.ticks):
            begun[i] = t
            t += tick.forward_s[0] + tick.forward_s[1] * self.n
            ends[i] = t
        turn = t
        left = self._copies_out(ends)
        back = self._copies_in(left, turn)
        backward_end = {}
        for i in reversed(range(len(self.profile.ticks))):
            wanted = [back[key] for key in self.swapped if self.need[key] == i]
            t = max([t, *wanted])
            for key in self.derived:
                if self.need[key] == i:
                    self.stays.append((self.size[key], t, ("freed", key)))
                    t += self.rows[key].derive_s_per_sample * self.n
            tick = self.profile.ticks[i]
            t += tick.backward_s[0] + tick.backward_s[1] * self.n
            backward_end[i] = t
        self._count(begun, ends, left, back, backward_end)
        return t

    def _copies_out(self, ends):
        """Return when each copy has left, by a heap of (last use, number)."""
        order = {key: i for i, key in enumerate(self.rows)}
        heap = [(self.rows[key].packed_ticks[-1], order[key], key) for key in self.swapped]
        heapq.heapify(heap)
        lane, left = 0.0, {}
        while heap:
            last, _, key = heapq.heappop(heap)
            lane = max(lane, ends[last]) + self.copy_s[key]
            left[key] = lane
        return left

    def _copies_in(self, left, turn):
        """Return when each copy is back: the first needed first, none before it has left."""
        order = {key: i for i, key in enumerate(self.rows)}
        heap = [(-self.need[key], order[key], key) for key in self.swapped]
        heapq.heapify(heap)
        lane, back = turn, {}
        while heap:
            _, _, key = heapq.heappop(heap)
            lane = max(lane, left[key]) + self.copy_s[key]
            back[key] = lane
        return back

    def _count(self, begun, ends, left, back, backward_end):
        for key, row in self.rows.items():
            first = begun[max(row.born_tick, 0)]
            freed = backward_end[row.packed_ticks[0]]
            action = self.plan.action_of[key]
            if action == KEEP:
                self.stays.append((self.size[key], first, freed))
            elif action == SWAP:
                self.stays.append((self.size[key], first, left[key]))
                self.stays.append((self.size[key], left[key], freed))
            else:
                self.stays.append((self.size[key], first, ends[row.packed_ticks[-1]]))
        self.stays = [
            (size, start, backward_end[self.rows[until[1]].packed_ticks[0]] if isinstance(until, tuple) else until)
            for size, start, until in self.stays
        ]

    def least_peak(self):
        """Return the most bytes of rows that are needed at one instant, without what only waits."""
        changes = defaultdict(float)
        for size, start, until in self.stays:
            changes[start] += size
            changes[until] -= size
        level = most = 0.0
        for _, change in sorted(changes.items()):
            level += change
            most = max(most, level)
        return most


@fewer(2)
@given(planned(actions=(KEEP, SWAP, DERIVE)), st.integers(1, 3))
def test_both_models_take_the_same_time(pair, n):
    """Whatever is swapped or derived, without a budget."""
    of, plan = pair
    assert predict(of, plan, n).step_s == pytest.approx(Reference(of, plan, n).step_s)


@fewer(2)
@given(planned(actions=(KEEP,)), st.integers(1, 3))
def test_both_models_count_the_same_bytes(pair, n):
    """Where everything stays, with the transients of the tick that holds most."""
    of, plan = pair
    said = predict(of, plan, n).peak_bytes - of.fixed_bytes
    least = Reference(of, plan, n).least_peak()
    transients = [n * pair[1] + pair[0] for tick in of.ticks
                  for pair in (tick.forward_transient_bytes, tick.backward_transient_bytes)]  # fmt: skip
    assert least - 1e-6 <= said <= least + max(transients) + 1e-6


def test_the_reference_counts_by_hand_too():
    """Three layers that are all swapped: eleven seconds; two are at once there at most."""
    plan = acting(chain(), l0=SWAP, l1=SWAP, l2=SWAP)
    assert Reference(chain(), plan, 1).step_s == 11.0
    kept = SwapPlan.keeping(chain())
    assert (Reference(chain(), kept, 1).step_s, Reference(chain(), kept, 1).least_peak()) == (9.0, 30.0)
    slow = wide(4, link=SwapLink.of(2.5))
    both = acting(slow, l0=SWAP, l1=DERIVE)
    assert Reference(slow, both, 1).step_s == predict(slow, both, 1).step_s
