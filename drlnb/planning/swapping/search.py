"""Search for plans: what a planner may choose for each row, what a choice costs, and better choices from there."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from drlnb.planning.swapping.cost import Walker, room, walker
from drlnb.planning.swapping.planner import SwapView
from drlnb.planning.swapping.profile import ACTIONS, BLOCK, DERIVE, KEEP, SQUEEZE, SWAP, Action, SavedRow, SwapPlan

__all__ = ["Choice", "Search", "best", "climbed", "greedy"]

#: Sizes of the sets of rows that a move changes.
_SIZES = (1, 1, 1, 2, 4, 8)
#: Moves of a local search, and those of one among many rows.
_MOVES, _FEWER_MOVES, _MANY_ROWS = 400, 200, 100
#: Moves of each kind that are tried before the best one is made.
_TRIED = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """An action for each row, and the blocks that are made again."""

    actions: tuple[Action, ...]
    blocks: frozenset[str] = frozenset()


class Search:
    """The plans that are allowed for a view, and their costs.

    Parameters
    ----------
    view
        The step; it has a profile.
    actions
        Names of the actions that plans may use beside KEEP.
    """

    def __init__(self, view: SwapView, actions: Collection[str] = ACTIONS) -> None:
        assert view.profile is not None, "a search needs a profile"
        self.profile, self.view = view.profile, view
        self.numbers: Walker = walker(view.profile, view.n_samples)
        self.room = room(view.profile, view.memory_budget_bytes)
        self.generator = np.random.default_rng(view.seed)
        pinned = [row for row in view.profile.rows if view.pins.get(row.name) == DERIVE]
        self._pinned_sources = {row.derive_from for row in pinned}
        self.options = [self._options(row, actions) for row in view.profile.rows]
        free = {row.key for row in view.profile.rows if row.name not in view.pins}
        self.blocks = {
            each.path: frozenset(each.rows) for each in view.profile.blocks if BLOCK in actions and free >= {*each.rows}
        }
        self._walked: dict[Choice, tuple[float, float]] = {}

    def _options(self, row: SavedRow, actions: Collection[str]) -> tuple[Action, ...]:
        pin = self.view.pins.get(row.name)
        wanted = {KEEP, *actions} if pin is None else {pin}
        if row.key in self._pinned_sources:
            wanted &= {KEEP, SWAP}
        return tuple([each for each in row.actions if each in wanted])

    def choice(self, wanted: Sequence[Action], blocks: Iterable[str] = ()) -> Choice:
        """Return the allowed choice nearest to a wanted one: no DERIVE from a DERIVE, BLOCK within blocks alone."""
        inside = {key for path in blocks for key in self.blocks[path]}
        actions = [
            BLOCK if row.key in inside else action if action in options else options[0]
            for row, action, options in zip(self.profile.rows, wanted, self.options, strict=True)
        ]
        for i, action in enumerate(actions):
            if action == DERIVE and actions[self.numbers.source[i]] not in {KEEP, SWAP}:
                actions[i] = KEEP
        return Choice(tuple(actions), frozenset(blocks))

    def every(self, *preferred: Action, blocks: Iterable[str] = ()) -> Choice:
        """Return the choice of the first of these actions that each row allows, else what comes first for it."""
        wanted = [next((each for each in preferred if each in options), options[0]) for options in self.options]
        return self.choice(wanted, blocks)

    def walked(self, choice: Choice) -> tuple[float, float]:
        """Return the peak beside what stays anyway, and the seconds of a step."""
        if choice not in self._walked:
            walk = self.numbers.walk(choice.actions, choice.blocks, self.room)
            self._walked[choice] = walk.peak, walk.t
        return self._walked[choice]

    def score(self, choice: Choice) -> tuple[float, float, float]:
        """Return bytes beyond the budget, those that stay if there are any, and seconds of a step; smaller is better.

        Where nothing fits, of equal peaks the choice that moves most is best: peaks are predictions.
        """
        peak, seconds = self.walked(choice)
        over = max(0.0, peak - self.room)
        return over, self.numbers.kept_bytes(choice.actions) if over else 0.0, seconds

    @cached_property
    def plain(self) -> tuple[float, float]:
        """The less of the budget and the peak of a step that keeps all, and its seconds, as if there were room."""
        walk = self.numbers.walk(self.every(KEEP).actions, (), math.inf)
        return min(walk.peak, self.room), walk.t

    def innermost(self) -> list[str]:
        """Return the blocks that hold no other block."""
        return [path for path, rows in self.blocks.items() if not any(other < rows for other in self.blocks.values())]

    def plan(self, choice: Choice) -> SwapPlan:
        """Return a choice as a plan."""
        order = [path for path in self.numbers.spans if path in choice.blocks]
        kept = SwapPlan.keeping(self.profile)
        return replace(kept, actions=choice.actions, blocks=tuple(order))


def best(search: Search, choices: Iterable[Choice]) -> Choice:
    """Return the fastest choice that fits; the one that is the least beyond the budget if none does."""
    return min(choices, key=search.score)


# ------------------------------------------------------------------ greedy
def greedy(search: Search, choice: Choice) -> Choice:
    """Make the move that frees most bytes at the peak per second added, until the step fits.

    Where no move helps, since several ticks need as much, everything goes that can, if that is better.  The value of a
    move depends on the queues of the link, so the step is walked again after each.
    """
    while search.score(choice)[0] > 0.0:
        over, _, seconds = search.score(choice)
        moves = [each for each in _moves(search, choice) if search.score(each)[0] < over]
        if not moves:
            return best(search, (choice, search.every(SWAP, DERIVE, SQUEEZE)))
        choice = max(moves, key=lambda each: _worth(search.score(each), over, seconds))
    return choice


def _worth(score: tuple[float, float, float], over: float, seconds: float) -> float:
    added_s = score[2] - seconds
    return (over - score[0]) / added_s if added_s > 0.0 else math.inf


def _moves(search: Search, choice: Choice) -> Iterator[Choice]:
    """Yield the choices one move away that promise most."""
    n, walk = search.numbers, search.numbers.walk(choice.actions, choice.blocks, search.room)
    when = walk.peak_tick if walk.peak_tick >= 0 else -1 - walk.peak_tick
    cost_s: dict[Action, Callable[[int], float]] = {
        SQUEEZE: lambda i: 1e-9 / n.size[i],  # the large ones first
        DERIVE: lambda i: n.derive_s[i],
        SWAP: lambda i: n.out_s[i] + n.in_s[i],
    }
    for action, seconds in cost_s.items():
        # what is needed soon after the peak gains least
        rows = [
            i
            for i, (now, options) in enumerate(zip(choice.actions, search.options, strict=True))
            if now == KEEP and action in options and n.packs[when].count(i) == 0
        ]
        rows.sort(key=lambda i: seconds(i) / max(1.0, n.size[i]) - 1e-12 * (n.last[i] < when))
        for i in rows[:_TRIED]:
            yield search.choice([*choice.actions[:i], action, *choice.actions[i + 1 :]], choice.blocks)
    others = sorted(search.blocks.keys() - choice.blocks)
    others.sort(key=lambda path: n.again_s(path) / sum(n.size[i] for i in n.block_rows[path]))
    for path in others[:_TRIED]:
        yield _toggled(search, choice, path)


def _toggled(search: Search, choice: Choice, path: str) -> Choice:
    """Choose a block in place of those that it overlaps with, or choose it no longer."""
    if path in choice.blocks:
        return search.choice(choice.actions, choice.blocks - {path})
    apart = {other for other in choice.blocks if not search.blocks[other] & search.blocks[path]}
    return search.choice(choice.actions, apart | {path})


# ------------------------------------------------------------------ local search
def climbed(search: Search, choice: Choice, n_moves: int = 0) -> Choice:
    """Make random moves, each kept if the step is not slower: runs of rows or sets of them, or a block.

    Parameters
    ----------
    search
        What is allowed.
    choice
        Where it begins.
    n_moves
        Moves; 0: 400, or 200 of more than a hundred rows.
    """
    rows = [i for i, options in enumerate(search.options) if len(options) > 1]
    generator, paths = search.generator, sorted(search.blocks)
    for _ in range(n_moves or (_FEWER_MOVES if len(search.options) > _MANY_ROWS else _MOVES)):
        if paths and generator.random() < 0.2:
            other = _toggled(search, choice, paths[generator.integers(len(paths))])
        elif rows:
            other = _changed(search, choice, rows)
        else:
            break
        if search.score(other) <= search.score(choice):
            choice = other
    return choice


def _changed(search: Search, choice: Choice, rows: Sequence[int]) -> Choice:
    generator = search.generator
    size = min(len(rows), _SIZES[generator.integers(len(_SIZES))])
    if generator.random() < 0.5:
        start = int(generator.integers(len(rows) - size + 1))
        chosen = rows[start : start + size]
    else:
        chosen = [rows[i] for i in generator.choice(len(rows), size, replace=False)]
    wanted = list(choice.actions)
    kind = generator.random()
    for i in chosen:
        options = search.options[i]
        wanted[i] = options[int(kind * len(options))]
    return search.choice(wanted, choice.blocks)
