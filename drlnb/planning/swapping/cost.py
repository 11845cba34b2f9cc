"""Predict the time and the peak of a training step under a plan: three lanes, one for work and two for copies.

The forward pass is walked tick by tick, then the backward pass: rows are made, copied out, brought back in the order in
which they are needed, computed again, and freed after their last use.  The work waits where the budget has no room, and
where a row is not back yet.
"""

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from drlnb.planning.swapping.profile import DERIVE, KEEP, SQUEEZE, SWAP, Affine, Rates, SwapPlan, SwapProfile

__all__ = ["Lane", "Prediction", "Stall", "Walker", "predict", "room", "walker"]

#: (``compute``, ``d2h`` or ``h2d``; what; start in seconds; end in seconds).
Lane = tuple[str, str, float, float]
#: (``forward`` or ``backward``, tick, seconds).
Stall = tuple[str, int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the cost model expects of one training step."""

    step_s: float
    #: With what stays anyway, and what the allocator reserves beyond it.
    peak_bytes: float
    fits: bool
    #: Where the work waited for a copy.
    stalls: tuple[Stall, ...]
    #: Share of the copies' seconds during which the work went on; 1 without copies.
    hidden_frac: float
    #: What each lane did, in order; empty if that was not asked for.
    lanes: tuple[Lane, ...] = ()
    #: (start of an operation in seconds, bytes in use from then on); empty likewise.
    memory: tuple[tuple[float, float], ...] = ()

    @property
    def stall_s(self) -> float:
        """Seconds that the work waited."""
        return sum(seconds for _, _, seconds in self.stalls)


class Walker:
    """The numbers of a profile at one batch size, laid out for many walks.

    Parameters
    ----------
    profile
        What the step saves.
    n_samples
        Samples of the step.
    """

    def __init__(self, profile: SwapProfile, n_samples: int) -> None:
        self.profile = profile
        ticks, rows = profile.ticks, profile.rows
        self.forward_s = [_at(tick.forward_s, n_samples) for tick in ticks]
        self.backward_s = [_at(tick.backward_s, n_samples) for tick in ticks]
        self.forward_bytes = [_at(tick.forward_transient_bytes, n_samples) for tick in ticks]
        self.backward_bytes = [_at(tick.backward_transient_bytes, n_samples) for tick in ticks]
        #: Greatest transient of a backward tick and those that come after it.
        self.ahead_bytes = list(itertools.accumulate(self.backward_bytes, max))
        self.size = [row.bytes(n_samples) for row in rows]
        self.derive_s = [row.derive_s_per_sample * n_samples for row in rows]
        self.source = [profile.number.get(row.derive_from, -1) if row.derive_from else -1 for row in rows]
        self.last = [row.packed_ticks[-1] for row in rows]
        self.born = _by_tick(len(ticks), [(row.born_tick,) for row in rows])
        self.packs = _by_tick(len(ticks), [row.packed_ticks for row in rows])
        self.used = _by_tick(len(ticks), [(max(row.packed_ticks[-1], row.free_tick),) for row in rows])
        self.freed = _by_tick(len(ticks), [row.packed_ticks[:1] for row in rows])
        self.out_s = [size / _rate(profile.link.d2h, size) for size in self.size]
        self.in_s = [size / _rate(profile.link.h2d, size) for size in self.size]
        self.in_both_s = [size / _rate(profile.link.h2d_both, size) for size in self.size]
        self.block_rows = {each.path: [profile.number[key] for key in each.rows] for each in profile.blocks}
        self.spans = {each.path: (each.first_tick, each.last_tick) for each in profile.blocks}
        self.input_bytes = {each.path: _at(each.input_bytes, n_samples) for each in profile.blocks}
        #: Rows that come from outside and are needed to make the forward pass again.
        self.inputs = {path: _entering(profile, *span) for path, span in self.spans.items()}
        self.left = [row.squeeze_left_frac for row in rows]

    def again_s(self, path: str) -> float:
        """Return the seconds of a block's forward pass."""
        first, last = self.spans[path]
        return sum(self.forward_s[first : last + 1])

    def kept_bytes(self, actions: Sequence[str]) -> float:
        """Return what stays of the rows between their last forward use and their first backward one."""
        left = {KEEP: [1.0] * len(self.left), SQUEEZE: self.left}
        return sum(self.size[row] * left[action][row] for row, action in enumerate(actions) if action in left)

    def walk(
        self, actions: Sequence[str], blocks: Iterable[str], room_bytes: float, *, logged: bool = False
    ) -> "_Walk":
        """Walk one step; `room_bytes` is what all but the fixed bytes may take."""
        walk = _Walk(self, actions, blocks, room_bytes, [] if logged else None)
        for i in range(len(self.forward_s)):
            walk.forward(i)
        walk.turn()
        for i in reversed(range(len(self.forward_s))):
            walk.backward(i)
        return walk


def _at(pair: Affine, n_samples: int) -> float:
    """Return a + b B."""
    return pair[0] + pair[1] * n_samples


def _rate(rates: Rates, n_bytes: float) -> float:
    """Return the rate of a copy in bytes per second: that of the greatest measured size that it reaches."""
    reached = [speed for size, speed in rates if size <= n_bytes]
    return reached[-1] if reached else rates[0][1]


def _by_tick(n_ticks: int, ticks_of: Iterable[Sequence[int]]) -> list[list[int]]:
    """Return the rows of each tick; what is there before the first one counts to it."""
    rows: list[list[int]] = [[] for _ in range(n_ticks)]
    for row, ticks in enumerate(ticks_of):
        for tick in ticks:
            rows[max(tick, 0)].append(row)
    return rows


def _entering(profile: SwapProfile, first: int, last: int) -> list[int]:
    """Return the rows that are made before a span of ticks and packed within it."""
    return [
        i
        for i, row in enumerate(profile.rows)
        if row.born_tick < first and any(first <= tick <= last for tick in row.packed_ticks)
    ]


class _Walk:
    """One walk through a step."""

    def __init__(
        self, numbers: Walker, actions: Sequence[str], blocks: Iterable[str], room: float, log: list[Lane] | None
    ) -> None:
        self._n, self._actions, self._room, self.log = numbers, actions, room, log
        self.memory: list[tuple[float, float]] = []
        self._blocks = {numbers.spans[path][1]: path for path in blocks}
        #: Tick at which a block begins -> bytes that stay for it.
        self._inputs = {numbers.spans[path][0]: numbers.input_bytes[path] for path in self._blocks.values()}
        self.t = self._out_t = self._in_t = 0.0
        self.resident = self.peak = self.copied_s = 0.0
        #: Tick of the peak, the backward ones from -1 down.
        self.peak_tick = 0
        self.stalls: list[Stall] = []
        #: (end of the copy, row), the oldest first.
        self._pending: deque[tuple[float, int]] = deque()
        self._out_end: dict[int, float] = {}
        #: Rows that are to come back, the first needed first, and when those are back that were asked for.
        self._coming: deque[int] = deque()
        self._arrives: dict[int, float] = {}
        self._needed: defaultdict[int, list[int]] = defaultdict(list)

    # ------------------------------------------------------------------ forward
    def forward(self, i: int) -> None:
        """Make the rows of a tick, once there is room."""
        n = self._n
        need = n.forward_bytes[i] + sum(n.size[row] for row in n.born[i]) + self._inputs.get(i, 0.0)
        self._stand("forward", i, need)
        self.resident += need - n.forward_bytes[i]
        self._work(f"f{i}", n.forward_s[i])
        for row in n.used[i]:
            action = self._actions[row]
            if action == SWAP:
                start = max(self._out_t, self.t)
                self._out_t = self._out_end[row] = start + n.out_s[row]
                self._pending.append((self._out_t, row))
                self._copy("d2h", row, start, self._out_t)
            elif action != KEEP:
                self.resident -= n.size[row] * (1.0 - (n.left[row] if action == SQUEEZE else 0.0))

    # ------------------------------------------------------------------ backward
    def turn(self) -> None:
        """Lay out when each row must be there: for its own use, for a row made from it, for its block."""
        n, actions = self._n, self._actions
        need = list(n.last)
        for row, action in enumerate(actions):
            if action == DERIVE:
                need[n.source[row]] = max(need[n.source[row]], need[row])
        for tick, path in self._blocks.items():
            for row in n.inputs[path]:
                need[row] = max(need[row], tick)
                if actions[row] == DERIVE:
                    need[n.source[row]] = max(need[n.source[row]], tick)
        swapped = [row for row, action in enumerate(actions) if action == SWAP]
        self._coming.extend(sorted(swapped, key=lambda row: -need[row]))
        for row, action in enumerate(actions):
            if action in {SWAP, DERIVE}:
                self._needed[need[row]].append(row)
        for rows in self._needed.values():  # sources first
            rows.sort(key=lambda row: actions[row] == DERIVE)

    def backward(self, i: int) -> None:
        """Bring back what comes next, wait for what is needed now, and free what was needed for the last time."""
        n, actions = self._n, self._actions
        self._release()
        while self._coming and self.resident + n.size[self._coming[0]] <= self._room - n.ahead_bytes[i]:
            self._fetch(self._coming.popleft())
        for row in self._needed[i]:
            if actions[row] == SWAP:
                while row not in self._arrives:
                    self._fetch(self._coming.popleft())
                self._wait("backward", i, self._arrives[row])
            else:
                self.resident += n.size[row]
                self._work(f"again {n.profile.rows[row].name}", n.derive_s[row])
        if i in self._blocks:
            self._again(self._blocks[i])
        widened = sum(n.size[row] for row in n.packs[i] if actions[row] == SQUEEZE)
        self._stand("backward", i, n.backward_bytes[i] + widened)
        self._work(f"b{i}", n.backward_s[i])
        self.resident -= self._inputs.get(i, 0.0)
        for row in n.freed[i]:
            self.resident -= n.size[row] * (n.left[row] if actions[row] == SQUEEZE else 1.0)

    def _again(self, path: str) -> None:
        """Make the forward pass of a block a second time: all its rows are there then."""
        n, (first, last) = self._n, self._n.spans[path]
        self.resident += sum(n.size[row] for row in n.block_rows[path])
        self._stand("backward", last, max(n.forward_bytes[first : last + 1]))
        self._work(f"again {path}", n.again_s(path))

    def _fetch(self, row: int) -> None:
        n, out = self._n, (self._out_end[row], row)
        start = max(self._in_t, self.t, out[0])
        self._in_t = self._arrives[row] = start + (n.in_both_s if start < self._out_t else n.in_s)[row]
        self._copy("h2d", row, start, self._in_t)
        if out in self._pending:  # it leaves and comes back into the same bytes
            self._pending.remove(out)
        else:
            self.resident += n.size[row]

    # ------------------------------------------------------------------ lanes
    def _release(self) -> None:
        while self._pending and self._pending[0][0] <= self.t:
            self.resident -= self._n.size[self._pending.popleft()[1]]

    def _wait(self, half: str, i: int, until: float) -> None:
        if until > self.t:
            self.stalls.append((half, i, until - self.t))
            self.t = until

    def _stand(self, half: str, i: int, extra: float) -> None:
        """Make room for what a tick needs beside what is there: wait for copies that free some."""
        self._release()
        while self._pending and self.resident + extra > self._room:
            self._wait(half, i, self._pending[0][0])
            self._release()
        if self.log is not None:
            self.memory.append((self.t, self.resident + extra))
        if self.resident + extra > self.peak:
            self.peak, self.peak_tick = self.resident + extra, i if half == "forward" else -1 - i

    def _work(self, name: str, seconds: float) -> None:
        if self.log is not None:
            self.log.append(("compute", name, self.t, self.t + seconds))
        self.t += seconds

    def _copy(self, lane: str, row: int, start: float, end: float) -> None:
        self.copied_s += end - start
        if self.log is not None:
            self.log.append((lane, self._n.profile.rows[row].name, start, end))


@lru_cache(maxsize=8)
def walker(profile: SwapProfile, n_samples: int) -> Walker:
    """Return the numbers of a profile at a batch size, the same ones each time."""
    return Walker(profile, n_samples)


def room(profile: SwapProfile, memory_budget_bytes: float | None) -> float:
    """Return what a budget leaves for all but the fixed bytes."""
    if memory_budget_bytes is None:
        return math.inf
    return memory_budget_bytes / (1.0 + profile.slack_frac) - profile.fixed_bytes


def predict(
    profile: SwapProfile,
    plan: SwapPlan,
    n_samples: int,
    memory_budget_bytes: float | None = None,
    *,
    lanes: bool = False,
) -> Prediction:
    """Predict one training step.

    Parameters
    ----------
    profile
        What the step saves.
    plan
        What is done with it.
    n_samples
        Samples of the step, at least 1.
    memory_budget_bytes
        What the step may use, what stays anyway included; None: any number.
    lanes
        Note what each lane does when.

    References
    ----------
    Ours; the lanes are those of vDNN (arXiv 1602.08124) with room for copies counted in bytes.

    Raises
    ------
    ValueError
        If the plan is not one for the profile.
    """
    problem = plan.problem(profile)
    if problem or n_samples < 1:
        raise ValueError(problem or f"n_samples must be >= 1, got {n_samples}")
    left = room(profile, memory_budget_bytes)
    walk = walker(profile, n_samples).walk(plan.actions, plan.blocks, left, logged=lanes)
    stall_s, slack = sum(seconds for _, _, seconds in walk.stalls), 1.0 + profile.slack_frac
    return Prediction(
        step_s=walk.t,
        peak_bytes=(profile.fixed_bytes + walk.peak) * slack,
        fits=walk.peak <= left,
        stalls=tuple(walk.stalls),
        hidden_frac=1.0 - min(1.0, stall_s / walk.copied_s) if walk.copied_s else 1.0,
        lanes=tuple(walk.log or ()),
        memory=tuple([(t, (profile.fixed_bytes + n_bytes) * slack) for t, n_bytes in walk.memory]),
    )
