"""The closed form of a split beside members that compute chunk by chunk on a heap of events."""

import heapq
import math
import random

import pytest

from drlnb.planning.batching import Member
from drlnb.planning.batching.gather import CUT_WAIT_S, Gathering, chunk_s
from drlnb.planning.batching.steps import play_split

ANSWER, CHUNK, DEADLINE, GIVE_UP = range(4)


class Heap:
    """A master and its members: each member computes chunks, looks for a cut between them, and answers."""

    def __init__(self, sizes, members, gathering, planned_hz, planned_s):
        self.sizes, self.members, self.gathering = sizes, members, gathering
        self.planned_s = planned_s
        self.chunks = [max(1, int(hz * chunk_s(planned_s))) for hz in planned_hz]
        self.events = []
        self.shared = {i for i, n in enumerate(sizes) if n}
        self.done = [0] * len(sizes)
        self.cut = self.closed_s = None
        self.answers, self.used, self.late = [], [0] * len(sizes), set()
        self.free_s = [0.0] * len(sizes)
        for i in self.shared:
            self._chunk(i)

    def _at(self, t, kind, member=-1):
        heapq.heappush(self.events, (t, kind, member))

    def _when(self, i, n):
        return self.members[i].overhead_s + n / self.members[i].speed_hz

    def _chunk(self, i):
        """Begin the next chunk of a member."""
        self.done[i] = min(self.sizes[i], self.done[i] + self.chunks[i])
        self._at(self._when(i, self.done[i]), CHUNK, i)

    def run(self):
        """Handle events until every member is free; what comes after the close changes nothing."""
        while self.events:
            t, kind, i = heapq.heappop(self.events)
            if kind == CHUNK:
                is_cut = self.cut is not None and self.gathering.late == "cut" and i in self.late
                if self.done[i] == self.sizes[i] or is_cut:
                    self.free_s[i] = t
                    self._answer(t, i)
                else:
                    self._chunk(i)
            elif self.closed_s is None and kind == DEADLINE:
                self._deadline(t)
            elif self.closed_s is None and kind == GIVE_UP:
                self.closed_s = t
        return self

    def _answer(self, t, i):
        if self.closed_s is not None:
            return
        q = self.gathering.needed(len(self.shared))
        if self.gathering.late == "cut" or i not in self.late:
            fresh = len(self.answers) < q or t < 2 * self.planned_s
            self.used[i] = self.done[i] if fresh else 0
        self.answers.append(i)
        if len(self.answers) == len(self.shared):
            self.closed_s = t
        elif len(self.answers) == q:
            self._at(1.15 * t, DEADLINE)

    def _deadline(self, t):
        self.cut = t
        self.late = self.shared - set(self.answers)
        if self.gathering.late == "drop":
            self.closed_s = t
        else:
            self._at(t + CUT_WAIT_S, GIVE_UP)


def _case(rng, late):
    n = rng.randint(1, 9)
    members = [
        Member(id=str(i), speed_hz=rng.uniform(5, 300), overhead_s=rng.choice([0.0, 0.01, rng.uniform(0, 0.2)]))
        for i in range(n)
    ]
    sizes = [rng.choice([0, rng.randint(1, 200)]) for _ in range(n)]
    sizes[rng.randrange(n)] = rng.randint(1, 200)
    quorum = rng.choice([1.0, 0.75, 0.5, rng.uniform(0.1, 1.0), max(2, n - 2)])
    planned_hz = [each.speed_hz * rng.uniform(0.3, 1.5) for each in members]
    return sizes, members, Gathering(quorum=quorum, late=late), planned_hz, rng.uniform(0.05, 1.5)


@pytest.mark.parametrize("late", ["cut", "drop"])
def test_the_closed_form_is_what_events_come_to(late):
    """200 random splits: when it closes, what is used, when each member is free, to 1e-9 s."""
    rng = random.Random(7)
    n_late = 0
    for _ in range(100):
        sizes, members, gathering, planned_hz, planned_s = _case(rng, late)
        heap = Heap(sizes, members, gathering, planned_hz, planned_s).run()
        step = play_split(
            sizes, members, gathering=gathering, planned_hz=planned_hz, predicted_s=planned_s, comm_s=0.02
        )
        assert step.duration_s == pytest.approx(heap.closed_s + 0.02, abs=1e-9)
        assert step.used == tuple(heap.used)
        assert step.free_s == pytest.approx(heap.free_s, abs=1e-9)
        assert list(step.first) == heap.answers[: gathering.needed(len(heap.shared))]
        assert step.n_used + step.n_lost == sum(sizes)
        n_late += bool(heap.late)
    assert n_late > 20  # or this would say little
    assert math.isfinite(step.wait_s)
