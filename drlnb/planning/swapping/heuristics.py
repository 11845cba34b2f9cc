"""Plan by rules and by search; `auto` takes what is predicted to be fastest."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from drlnb.planning.codec import from_plain
from drlnb.planning.swapping.learned import learning
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import ACTIONS, DERIVE, KEEP, SQUEEZE, SWAP, Action, SwapPlan, SwapProfile, facts
from drlnb.planning.swapping.search import Choice, Search, best, climbed, greedy
from drlnb.records.base import Row, shared
from drlnb.records.columns.swapping import SearchSwapPlan

__all__ = ["RULES", "Rule", "Searched", "candidates", "fastest", "searched", "type_choices"]

#: Chooses among the plans of a search.
Rule = Callable[[Search], Choice]
#: Layer types beyond this number, those of the fewest bytes, are kept.
_MOST_TYPES = 8
#: Among so few rows a local search begins at every start: from the best one alone it may end a fifth off the optimum.
_FEW_ROWS = 24
#: Plans of a search that are worth a trial.
_TRIED = 3


def _swapping(search: Search, rows: Iterable[int]) -> Choice:
    chosen = set(rows)
    return search.choice([SWAP if i in chosen else KEEP for i in range(len(search.options))])


def _consumed(search: Search, *names: str, otherwise: bool = False) -> Choice:
    """Swap the rows that these operations read, or those that others read."""
    rows = enumerate(search.profile.rows)
    return _swapping(search, [i for i, row in rows if any((name in names) != otherwise for name in row.consumers)])


def capuchin(search: Search) -> Choice:
    """Swap what is not needed for longest until the step fits; then compute again what is faster than swapped.

    References
    ----------
    Peng et al., Capuchin (ASPLOS 2020), as a rule over saved storages.
    """
    n = search.numbers
    ends = list(itertools.accumulate(n.forward_s))
    starts = list(itertools.accumulate(reversed(n.backward_s), initial=ends[-1]))
    free_s = [starts[len(ends) - 1 - last] - ends[last] - n.out_s[i] - n.in_s[i] for i, last in enumerate(n.last)]
    order = sorted((i for i, options in enumerate(search.options) if SWAP in options), key=lambda i: -free_s[i])
    choice = search.every(KEEP)
    for i in order:
        if search.score(choice)[0] == 0.0:
            break
        choice = search.choice([*choice.actions[:i], SWAP, *choice.actions[i + 1 :]])
    derived = [i for i, options in enumerate(search.options) if DERIVE in options]
    for i in sorted(derived, key=lambda i: n.derive_s[i] / max(1.0, n.size[i])):
        other = search.choice([*choice.actions[:i], DERIVE, *choice.actions[i + 1 :]])
        choice = best(search, (choice, other))
    return choice


def type_choices(search: Search) -> Iterator[Choice]:
    """Yield the plans that swap all rows of some layer types: the patent's grain."""
    size = dict.fromkeys(search.profile.types, 0.0)
    for row, n_bytes in zip(search.profile.rows, search.numbers.size, strict=True):
        size[row.layer_type] += n_bytes
    types = sorted(size, key=lambda name: -size[name])[:_MOST_TYPES]
    for bits in itertools.product((False, True), repeat=len(types)):
        chosen = set(itertools.compress(types, bits))
        yield _swapping(search, [i for i, row in enumerate(search.profile.rows) if row.layer_type in chosen])


def starts(search: Search) -> list[Choice]:
    """Return where a search may begin: what the rules plan, and mixes of them, squeezed and not."""
    inner = search.innermost()
    rules: list[tuple[Action, ...]] = [(KEEP,), (DERIVE,), (SWAP,), (DERIVE, SWAP)]
    mixes = [search.every(*more, *rule) for rule in rules for more in ((), (SQUEEZE,))]
    mixes += [search.every(*rule, blocks=inner) for rule in ((SQUEEZE,), (SWAP,))] if inner else []
    papers = [_consumed(search, "conv2d"), _consumed(search, "linear", otherwise=True), capuchin(search)]
    return [*mixes, *papers, best(search, type_choices(search))]


def fastest(search: Search) -> list[Choice]:
    """Return the plans that a search from several starts finds, the best first."""
    first = starts(search)
    if search.score(first[0])[0] == 0.0:  # all fits: nothing is faster than to keep it
        return first[:1]
    bases = [first[0], search.every(SQUEEZE), search.every(SQUEEZE, DERIVE), best(search, first)]
    choices = [*first, *[greedy(search, base) for base in dict.fromkeys(bases)]]
    tops = choices if len(search.options) <= _FEW_ROWS else [best(search, choices)]
    choices += [climbed(search, top) for top in dict.fromkeys(tops)]
    return sorted(dict.fromkeys(choices), key=search.score)


#: Name -> how it chooses.
RULES: dict[str, Rule] = {
    "all": lambda search: search.every(SWAP),
    "vdnn_conv": lambda search: _consumed(search, "conv2d"),
    "vdnn_all": lambda search: _consumed(search, "linear", otherwise=True),
    "capuchin": capuchin,
    "greedy": lambda search: greedy(search, search.every(KEEP)),
    "hybrid": lambda search: fastest(search)[0],
    "auto": lambda search: fastest(search)[0],
}


class Searched:
    """Plans by one rule; keeps everything where there is no profile or no budget.

    Parameters
    ----------
    name, rule
        The rule.
    actions
        Names of the actions that it may use beside ``keep``, joined by ``+``; ``all``: each that is exact for a row.
    """

    def __init__(self, name: str, rule: Rule, actions: str = "all") -> None:
        self.name, self._rule = name, rule
        self._actions = ACTIONS if actions == "all" else tuple(actions.split("+"))
        if unknown := [action for action in self._actions if action not in ACTIONS]:
            raise ValueError(f"actions must be some of {', '.join(ACTIONS)} joined by +, got {unknown[0]!r}")

    def plan(self, view: SwapView) -> SwapPlan:
        """Return the rule's plan."""
        if view.profile is None or view.memory_budget_bytes is None:
            return SwapPlan.keeping(view.profile)
        search = Search(view, self._actions)
        return search.plan(self._rule(search))


def candidates(planner: str, view: SwapView) -> tuple[SwapPlan, ...]:
    """Return a planner's plans that are worth a trial, the best first: ``auto`` has several, each other one its own.

    Parameters
    ----------
    planner
        Its name; of one that learns by trials it is the plan that they begin with.
    view
        The step; it has a profile.
    """
    if planner == "auto":
        search = Search(view)
        return tuple(map(search.plan, fastest(search)[:_TRIED]))
    built = SWAPPING.build(planner)
    learner = learning(built)
    return (SWAPPING.ask(built, view) if learner is None else learner.start(view),)


def searched(command: SearchSwapPlan) -> Row:
    """Carry out a search that a machine has commanded; return the fields of :class:`.SwapPlanFound`."""
    profile = from_plain(SwapProfile, command.profile)
    view = SwapView(**shared(command, SwapView) | {"profile": profile})
    plans = tuple(map(facts, candidates(command.planner, view)))
    return {"profile_key": profile.key, "memory_budget_bytes": command.memory_budget_bytes, "plans": plans}


for _name, _rule in RULES.items():
    SWAPPING.register(_name, partial(Searched, _name, _rule), {"actions": "all"})
