"""Choose the slots of a gang by plain rules; ties go to the first slot."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from drlnb.planning.placement.cluster import ClusterView, JobView, Pick

__all__ = [
    "Choose",
    "Rule",
    "best_fit",
    "first",
    "healthiest",
    "healthiest_packed",
    "interference_aware",
    "random_rule",
    "rate_of",
]

_MASK = (1 << 64) - 1
#: Constants of the generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
_STEP, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
#: Free slots of each node, in the order in which a rule takes them.
_ByNode = dict[int, list[int]]
#: Returns the free slots that a job gets; with those that it holds they are its `n_slots`.
Choose = Callable[[ClusterView, JobView], Sequence[int]]


class Rule:
    """A planner that takes the next job of the queue and chooses its slots.

    Parameters
    ----------
    name
        What the journal calls it.
    choose
        Returns the free slots that a job gets.
    """

    def __init__(self, name: str, choose: Choose) -> None:
        self.name, self._choose = name, choose

    def plan(self, view: ClusterView) -> Pick | None:
        """Return the first job of the window, with the slots that it holds before those that it gets."""
        if not view.window:
            return None
        job = view.window[0]
        return Pick(job.job, (*job.kept, *self._choose(view, job)))


def first(view: ClusterView, job: JobView) -> list[int]:
    """Return the free slots of the lowest numbers."""
    return view.free()[: job.n_slots - len(job.kept)]


def random_rule(seed: int = 0) -> Rule:
    """Return the rule of any slots, all sets alike; the same seed, job and time give the same slots."""
    return Rule("random", partial(_random, seed))


def _random(seed: int, view: ClusterView, job: JobView) -> list[int]:
    free, state = view.free(), hash_of(seed, view.t.hex(), job.job)
    n = job.n_slots - len(job.kept)
    for i in range(n):
        state, drawn = _next(state)
        k = i + drawn % (len(free) - i)
        free[i], free[k] = free[k], free[i]
    return sorted(free[:n])


def healthiest(view: ClusterView, job: JobView) -> list[int]:
    """Return the free slots of the least rates."""
    n = job.n_slots - len(job.kept)
    return sorted(sorted(view.free(), key=view.rate_hz.__getitem__)[:n])


def best_fit(view: ClusterView, job: JobView, *, by_health: bool = False) -> list[int]:
    """Return slots node by node: of a node in use, of the one that the rest fills best, or of the emptiest.

    Parameters
    ----------
    view
        The cluster.
    job
        The job.
    by_health
        Take the healthiest slots of a node, not its first ones.
    """
    return _by_nodes(view, job, lambda free, n: min(free, key=lambda node: (len(free[node]), node)), by_health)


def healthiest_packed(view: ClusterView, job: JobView, among: Collection[int] | None = None) -> list[int]:
    """Return slots node by node: of the node whose healthiest slots, as many as are missing, fail least.

    Parameters
    ----------
    view
        The cluster.
    job
        The job.
    among
        Nodes that may be used; None: all of them.
    """

    def best(free: _ByNode, n: int) -> int:
        return min(free, key=lambda node: (rate_of(view.rate_hz, free[node][:n]), node))

    return _by_nodes(view, job, best, by_health=True, among=among)


def interference_aware(view: ClusterView, job: JobView) -> list[int]:
    """Return slots of nodes with the fewest gangs that talk to other nodes; of these few nodes, and healthy ones."""
    if not view.n_wide:
        return healthiest_packed(view, job)
    nodes, n_free = view.cluster.node_of, Counter(view.cluster.node_of[slot] for slot in view.free())
    kept = {nodes[slot] for slot in job.kept}

    def quiet(most: int) -> set[int]:
        return {node for node in n_free if view.n_wide[node] <= most or node in kept}

    enough = (
        among
        for among in map(quiet, sorted(set(view.n_wide)))
        if sum(n_free[node] for node in among) >= job.n_slots - len(job.kept)
    )
    return healthiest_packed(view, job, among=next(enough))


def _by_nodes(
    view: ClusterView,
    job: JobView,
    best: Callable[[_ByNode, int], int],
    by_health: bool,
    among: Collection[int] | None = None,
) -> list[int]:
    """Return slots node by node: where one holds what is missing the best such one, else all of the emptiest node.

    Of several that are as empty it is the healthiest: else gangs of more than a node fill the first ones, lemons and
    all.  Nodes of slots that the job holds come before others.
    """
    node_of, free = view.cluster.node_of, _ByNode()
    slots: Iterable[int] = view.free()
    for slot in sorted(slots, key=view.rate_hz.__getitem__) if by_health else slots:
        if among is None or node_of[slot] in among:
            free.setdefault(node_of[slot], []).append(slot)
    used, chosen = {node_of[slot] for slot in job.kept}, list[int]()

    def emptiest(node: int) -> tuple[int, float, int]:
        return -len(free[node]), rate_of(view.rate_hz, free[node]) if by_health else 0.0, node

    while (n := job.n_slots - len(job.kept) - len(chosen)) > 0:
        near = {node: slots for node, slots in free.items() if node in used} or free
        holding = {node: slots for node, slots in near.items() if len(slots) >= n}
        node = best(holding, n) if holding else min(near, key=emptiest)
        chosen += free.pop(node)[:n]
    return sorted(chosen)


def rate_of(rate_hz: Sequence[float], slots: Iterable[int]) -> float:
    """Return the failures per second of some slots, summed in their order: another one gives other last bits."""
    return sum(rate_hz[slot] for slot in sorted(slots))


def hash_of(*parts: object) -> int:
    """Return a number of 64 bits that depends on each of some plain values, and on nothing else."""
    state = 0
    for byte in "\0".join(map(str, parts)).encode():
        state = ((state ^ byte) * _MIX_1 + _STEP) & _MASK
    return state


def _next(state: int) -> tuple[int, int]:
    """Return the next state of SplitMix64 and its number, 64 bits each."""
    state = (state + _STEP) & _MASK
    z = ((state ^ (state >> 30)) * _MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
    return state, z ^ (z >> 31)
