"""Choose the planner of each decision, and pack those of the user's own for the way to where they are asked."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drlnb.fleet.faces import say
from drlnb.fleet.plain import Plain, by_name
from drlnb.planning.batching.gather import Gathering
from drlnb.planning.decisions import KINDS, kind_of
from drlnb.planning.placement.planner import GangPlacement
from drlnb.planning.registry import OWN
from drlnb.records.errors import ConfigError
from drlnb.rl.pickled import pack
from drlnb.runtime.files.planners import resolve

if TYPE_CHECKING:
    from drlnb.sim.placement.history import History

__all__ = ["CHOICES", "QUORUM", "Chosen", "chosen", "gathered", "not_of_rounds", "trained_for", "without_effect"]

#: Sets of planners by name.
_SETS: Mapping[str, dict[str, str]] = {
    "auto": {},
    "patent": {
        "hold": "round",
        "warmup": "patent",
        "batching": "patent",
        "distribution": "relay",
        "swapping": "qtable",
        "placement": f"{OWN}patent",
    },
}
#: Planner of placement that is trained before its run: an own one, see :func:`trained_for`; what follows its name where
#: that is done on a past run.
_TRAINED, _ON = ("placement", "patent"), ":history="
#: By the batching patent a step waits for so many of its members, where samples may be left out, and drops the others.
QUORUM = 0.75

#: Setting -> values that it can be given while tasks run.
CHOICES: Mapping[str, tuple[str, ...]] = {"leasing.hold": tuple(sorted(KINDS["hold"].names))}


#: Decisions, and rooms of settings, that are about collectors, or several learners.
_OF_COLLECTORS = ("batching", "collect", "distribution", "placement", "warmup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The planners of a run."""

    #: Decision -> name, for all of them.
    names: dict[str, str]
    #: Decision -> a user's own planner as text, see :mod:`drlnb.rl.pickled`.
    own: dict[str, str] = field(default_factory=dict)
    #: All rules are the patents': collectors end between rounds, where their environments can go on.
    patent: bool = False


def chosen(asked: Mapping[str, object] | str | None = None) -> Chosen:
    """Return the planner of each decision.

    Parameters
    ----------
    asked
        Decision -> a name (with parameters: ``relay:m=4``), or a planner, or its class, for those that shall differ
        from the default; ``"auto"``: the defaults; ``"patent"``: the rules of the patents, where they differ.  Planner
        `patent` of placement is trained before the run; ``patent:history=DIR``: on the failures and jobs of a past run.

    Raises
    ------
    ConfigError
        If a decision, a name or a parameter is wrong, or a planner has not the face of one or cannot travel; the
        message holds all of it.

    Examples
    --------
    >>> chosen({"hold": "last"}).names["hold"]
    'last'
    """
    names = {decision: kind.default for decision, kind in KINDS.items()}
    if isinstance(asked, str):
        if asked not in _SETS:
            raise ConfigError(f"planners must be {', '.join(map(repr, _SETS))} or decision -> name, got {asked!r}")
        return Chosen(names=names | _SETS[asked], patent=asked == "patent")
    own: dict[str, str] = {}
    problems = []
    for decision, value in by_name("planners", asked).items():
        try:
            if _is_trained(decision, value):
                names[decision] = f"{OWN}{value}"
                _past_of(str(value))  # before anything is started
                continue
            planner = resolve(kind_of(decision), value)
            if isinstance(planner, str):
                names[decision] = planner
            else:
                names[decision], own[decision] = f"{OWN}{planner.name}", pack(planner)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(problems)
    return Chosen(names=names, own=own)


def trained_for(
    slots: Callable[[], Iterable[str]], names: Mapping[str, str], own: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the own planners of a run, with the placement patent's if it is chosen: it is trained now, as is said.

    Parameters
    ----------
    slots
        Returns the names of the pool's slots.
    names, own
        As of :class:`Chosen`; of a run that goes on the planner is there.

    Raises
    ------
    ConfigError
        If it is to be trained on a run none of whose slots is there.
    """
    decision, _ = _TRAINED
    name = names.get(decision, "").removeprefix(OWN)
    if names.get(decision) == name or not _is_trained(decision, name) or decision in own:
        return own
    from drlnb.sim.placement.training import BEFORE_RUN_S, patent_after, patent_for

    known = sorted(slots())
    past = _past_of(name)
    if past is None:
        on = f"for the {len(known)} slots of this pool, simulated"
    elif there := set(past.slots) & set(known):
        on = f"on {past.n_failures} failures of {len(past.slots)} slots, {len(there)} of them of this pool"
    else:
        raise ConfigError(f"{name} knows slots {', '.join(past.slots)}, this pool has {', '.join(known)}")
    say(f"placement planner patent is trained {on}: {BEFORE_RUN_S:g} s")
    return {**own, decision: pack(GangPlacement(name, patent_for(known) if past is None else patent_after(past)))}


def _past_of(name: str) -> "History | None":
    """Return what became of slots and jobs of the run on which the patent's planner is trained; None of none."""
    from drlnb.sim.placement.history import history_of

    folder = name.partition(_ON)[2]
    return history_of(folder) if folder else None


def _is_trained(decision: str, value: object) -> bool:
    planner, name = _TRAINED
    return decision == planner and (value == name or str(value).startswith(name + _ON))


def gathered(rules: Chosen, n_learners: int, settings: Plain) -> Plain:
    """Return the settings of supervised work: the patent's of its steps, too, where these may leave samples out.

    Parameters
    ----------
    rules
        The planners of the run.
    n_learners
        The task's; of fewer than four learners three quarters are all.
    settings
        What the user has given; a quorum of the user's own stays, and steps that leave nothing out.

    Examples
    --------
    >>> gathered(chosen("patent"), 4, {"leasing.switch_limit_frac": 0.5})
    {'batching.quorum': 0.75, 'batching.late': 'drop', 'leasing.switch_limit_frac': 0.5}
    >>> gathered(chosen("patent"), 3, {}), gathered(chosen(), 4, {})
    ({}, {})
    >>> gathered(chosen("patent"), 4, {"batching.steal": True})
    {'batching.steal': True}
    """
    waits_for_all = Gathering(quorum=QUORUM).needed(n_learners) == n_learners
    if not rules.patent or waits_for_all or {"batching.quorum", "batching.steal"} & settings.keys():
        return settings
    return {"batching.quorum": QUORUM, "batching.late": "drop", **settings}


def without_effect(keys: Iterable[object], *, several: bool = False) -> list[str]:
    """Return in words which of some decisions or settings would have no effect on supervised work.

    Parameters
    ----------
    keys
        Decisions, or keys of settings.
    several
        Whether it has several learners.

    Examples
    --------
    >>> without_effect(["hold", "warmup.rho"])
    ['warmup.rho has no effect on supervised work: it has one learner and no collectors']
    >>> without_effect(["batching", "batching.quorum", "batching.collect"], several=True)
    ['batching.collect has no effect on supervised work: it has no collectors']
    """
    about = f"has no effect on supervised work: it has {'' if several else 'one learner and '}no collectors"
    idle = [str(key) for key in keys if str(key).partition(".")[0] in _OF_COLLECTORS]
    if several:
        idle = [key for key in idle if key.partition(".")[0] != "batching" or key == "batching.collect"]
    return [f"{key} {about}" for key in idle]


def not_of_rounds(keys: Iterable[object]) -> list[str]:
    """Return in words which of some settings would have no effect on tasks with collectors.

    Examples
    --------
    >>> not_of_rounds(["batching.late", "batching.planner"])
    ['batching.late has no effect on a task with collectors: only the steps of fleet.fit can leave samples out']
    """
    about = "has no effect on a task with collectors: only the steps of fleet.fit can leave samples out"
    return [f"{key} {about}" for key in keys if key in {f"batching.{name}" for name in Gathering.names()}]
