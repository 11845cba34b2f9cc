"""Declare GPF's settings, and the family of policies that they describe.

Names are Stable-Baselines3's where it has the same thing; the field comments are the help texts.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from drlnb.records.base import Facts
from drlnb.records.settings import SHARE, Kind, choice, count, fitting, optional, quoted, setting
from drlnb.rl.networks.policies import normalised
from drlnb.rl.schedules import Scheduled
from drlnb.rl.settings import checks
from drlnb.rl.settings.checks import OnPolicySettings

__all__ = ["GpfSettings", "ends", "path_value"]

#: Fewest fresh actions in a mean of A: one would be the taken action's twin in noise.
_ACTION_SAMPLES = count(5)


def path_value(path: float | Sequence[float], progress_remaining: float) -> float:
    """Return the value of a number, or of a straight path ``[start, end]``, at a remaining progress in ``[0, 1]``.

    Examples
    --------
    >>> path_value(0.5, 0.3), path_value([0.5, 0.25], 0.5)
    (0.5, 0.375)
    """
    start, end = ends(path)
    return float(end + (start - end) * progress_remaining)


def ends(path: float | Sequence[float]) -> tuple[float, float]:
    """Return start and end of a path, rounded to float32: as they travel, so that both sides compute the same."""
    start, end = (path, path) if isinstance(path, int | float) else path
    return float(np.float32(start)), float(np.float32(end))


def _path(end: Kind) -> Kind:
    def fits(value: object) -> bool:
        both = value if isinstance(value, list | tuple) and len(value) == 2 else (value,)
        return not any(end.problem("", each) for each in both)

    return fitting(f"{end.words}, or a path [start, end] of two such numbers", fits)


#: What a member of the family may set; what it does not set is the setting of the same name.
_MEMBER: Mapping[str, Kind] = {"eps": _path(SHARE), "tau1": _path(checks.ABOVE_0), "tau2": _path(checks.ABOVE_0)}


def _members(name: str, value: object) -> str:
    if not isinstance(value, list | tuple) or not value:
        return f"{name} must be a list of at least one mapping of {', '.join(_MEMBER)}, or none, got {quoted(value)}"
    problems = (checks.parts(_MEMBER).problem(f"{name}[{i}]", member) for i, member in enumerate(value))
    return next(filter(None, problems), "")


def _of_sequences(values: Facts, n_envs: int) -> list[str]:
    """Return what keeps the mean over a sequence's samples from being one."""
    batch, n_steps, why = values["batch_size"], values["n_steps"], "with expectation='samples'"
    problems = []
    if batch is not None and batch < n_steps * n_envs:
        problems.append(f"batch_size must be None {why}: a mean over part of a round is another one, got {batch}")
    if n_steps == 1:
        problems.append(f"n_steps must be >= 2 {why}: a single sample is its own mean, got 1")
    if values["n_action_samples"] is not None:
        problems.append(f"n_action_samples draws fresh actions, {why} the sequence's own count: leave one of them out")
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class GpfSettings(OnPolicySettings):
    """GPF's settings, complete; see :class:`drlnb.rl.settings.checks.Settings`."""

    #: Step size of Adam; a number, ``lin_x`` or a function of the progress that remains.
    learning_rate: Scheduled = setting("lin_0.001", checks.SCHEDULE, live=True)
    #: Steps per environment and round.
    n_steps: int = setting(32, checks.WHOLE)
    #: Samples per gradient step; none: the whole round.
    batch_size: int | None = setting(None, optional(checks.WHOLE))
    #: Passes over the round's samples; 1 with the whole round: gradients are computed as experience arrives.
    n_epochs: int = setting(20, checks.WHOLE, live=True)
    #: Weight of the first softmax in the policy; a number or a path ``[start, end]``.
    eps: float | Sequence[float] = setting(1.0, _MEMBER["eps"], live=True)
    #: Temperature of the first softmax, in units of scaled reward; a number or a path ``[start, end]``.
    tau1: float | Sequence[float] = setting((0.1, 0.02), _MEMBER["tau1"], live=True)
    #: Temperature of the second softmax, which has the weight 1 - eps; a number or a path ``[start, end]``.
    tau2: float | Sequence[float] = setting(1.0, _MEMBER["tau2"], live=True)
    #: Members of the family, each a mapping of eps, tau1, tau2 (missing: as above); member i mod M acts in env i.
    members: Sequence[Mapping[str, float | Sequence[float]]] | None = setting(None, optional(Kind(_members)))
    #: Expectation of A: under the policy of the member that acted (``behavior``), or of the first one (``target``); or
    #: the mean over the samples of each environment's round (``samples``), which says nothing of a state's own.
    expectation: str = setting("behavior", choice("behavior", "target", "samples"))
    #: Fresh actions per state in the mean of A; none: the exact sum over actions.
    n_action_samples: int | None = setting(None, optional(_ACTION_SAMPLES))
    #: Weight of the action value's mean squared error.
    q_coef: float = setting(0.5, checks.ABOVE_0)
    #: Weight of an additional policy-gradient term.
    pg_coef: float = setting(0.0, checks.WEIGHT)
    #: Rewards are multiplied by it, after any normalising; none: 1, with a warning if rewards are not normalised.
    reward_scale: float | None = setting(None, optional(checks.ABOVE_0))

    @classmethod
    def check_together(cls, values: Facts, n_envs: int) -> list[str]:
        """Return what is wrong between settings that are each good.

        Warns
        -----
        UserWarning
            When the temperatures have no unit: rewards are neither scaled nor normalised.
        """
        problems, members = super(GpfSettings, cls).check_together(values, n_envs), len(values["members"] or ((),))
        if members > n_envs:
            problems.append(f"members must be at most n_envs = {n_envs} (member i mod M acts in env i), got {members}")
        if values["expectation"] == "samples":
            problems += _of_sequences(values, n_envs)
        if not problems and values["reward_scale"] is None and not normalised(values["normalize"])[1]:
            warnings.warn(
                f"gpf: neither reward_scale nor norm_reward is set; tau1 = {values['tau1']} is in units of reward, and "
                "far below the differences of returns the policy collapses (reward_scale = 1 says that it fits)",
                stacklevel=3,
            )
        return problems

    @property
    def n_members(self) -> int:
        """Size of the family."""
        return len(self.members or ({},))

    @property
    def is_mixed(self) -> bool:
        """Whether any member ever acts by two softmaxes."""
        return any(member.get("eps", self.eps) not in (1, [1, 1], (1, 1)) for member in self.members or ({},))

    def strategies(self, progress_remaining: float) -> np.ndarray:
        """Return ``eps, tau1, tau2`` of each member at a remaining progress in ``[0, 1]``; float32, shape ``(M, 3)``.

        The first member is the target: the one that plays outside of training.

        Examples
        --------
        >>> GpfSettings(tau1=[0.5, 0.25], tau2=2, members=[{}, {"eps": 0.5}]).strategies(0.0).tolist()
        [[1.0, 0.25, 2.0], [0.5, 0.25, 2.0]]
        """
        family = self.members or ({},)
        rows = [[member.get(key, getattr(self, key)) for key in _MEMBER] for member in family]
        return np.array([[path_value(path, progress_remaining) for path in row] for row in rows], np.float32)
