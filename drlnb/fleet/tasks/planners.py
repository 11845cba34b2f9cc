"""Which planner decides what, by name?"""

import difflib
from collections.abc import Callable, Mapping

from drlnb.planning.decisions import KINDS
from drlnb.planning.round.state import ROUND_DEFAULTS
from drlnb.records.errors import ConfigError

__all__ = ["CHOICES", "planner_names"]

#: Sets of planners by name.
_SETS: Mapping[str, dict[str, str]] = {"auto": {}, "seed": {"hold": "round", "warmup": "seed"}}

#: Setting -> values that it can be given while tasks run.
CHOICES: Mapping[str, tuple[str, ...]] = {"leasing.hold": ("last", "round", "yield")}

#: The six decisions, and what builds a planner for each (raises ValueError naming the known ones).
_BUILDERS: Mapping[str, Callable[[str], object]] = {decision: kind.build for decision, kind in KINDS.items()}


def planner_names(asked: Mapping[str, str] | str | None = None) -> dict[str, str]:
    """Return the planner's name for each of the six decisions.

    Parameters
    ----------
    asked
        Decision -> name, for those that shall differ from the default; ``"auto"``: the defaults; ``"seed"``: the rules
        of the patent that this project implements, where they differ.

    Raises
    ------
    ConfigError
        If a decision or a name is unknown; the message tells all of them and names the known ones.

    Examples
    --------
    >>> planner_names({"hold": "last"})["hold"]
    'last'
    """
    names: dict[str, str] = dict(ROUND_DEFAULTS["planners"])
    if isinstance(asked, str):
        if asked not in _SETS:
            raise ConfigError(f"planners must be {', '.join(map(repr, _SETS))} or decision -> name, got {asked!r}")
        return names | _SETS[asked]
    problems = []
    for decision, name in (asked or {}).items():
        builder = _BUILDERS.get(decision)
        if builder is None:
            near = difflib.get_close_matches(str(decision), _BUILDERS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_BUILDERS)}"
            problems.append(f"unknown kind of planner {decision!r}; {hint}")
            continue
        try:
            builder(name)
        except ValueError as error:
            problems.append(str(error))
        names[decision] = name
    if problems:
        raise ConfigError(problems)
    return names
