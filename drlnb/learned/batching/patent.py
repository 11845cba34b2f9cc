"""Split units as the batching patent has it: fed gradients, times and speeds, a network says how fast members will be.

What the patent leaves open is ours: gradients are fed as scalars, a member's performance parameter p is the factor by
which its speed differs from its long-run one c, and sizes are in proportion to c p.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from drlnb.learned.batching.features import features
from drlnb.learned.batching.network import Array, shipped
from drlnb.learned.batching.planner import Ddqn, History, after_report, histories, remembered
from drlnb.planning.batching import BatchPlan, BatchReport, BatchView
from drlnb.planning.batching.estimate import planned_by, speeds
from drlnb.planning.batching.proportional import by_largest_remainder

__all__ = ["Patent", "Received", "after_step", "seen", "shares"]

#: Figures of a member's gradient: its norm and age beside those of the others, and its cosine.
_GRADIENT = 3
#: Weight of the latest split in the mean length of splits.
_WEIGHT = 0.1
#: Digits that are remembered.
_DIGITS = 4


class Received(History):
    """What is remembered of members, and of the last step."""

    #: Member -> log(norm of its gradient / root mean square of all), cosine to the step's gradient, age / time of the
    #: split; a member whose gradient was not used, or not measured, has none.
    gradients: dict[str, list[float]]
    #: log(time of the last split / mean of those before); and that mean of logarithms, of seconds: none before a split.
    longer: float
    mean: list[float]


def after_step(memory: object, report: BatchReport) -> Received:
    """Return what is remembered after a report."""
    mean = list(_received(memory)["mean"])
    longer = 0.0
    if report.duration_s > 0:
        log_s = math.log(report.duration_s)
        mean = mean or [log_s]
        longer, mean = log_s - mean[0], [round(mean[0] + _WEIGHT * (log_s - mean[0]), _DIGITS)]
    known = after_report(memory, report)
    return {**known, "gradients": _scalars(report), "longer": round(longer, _DIGITS), "mean": mean}


def seen(memory: object, names: Sequence[str]) -> Array:
    """Return what the network sees of each member; shape ``(n_members, N_FEATURES + 4)``.

    Beside what :func:`~drlnb.learned.batching.features.features` makes of performance parameters so far, it is what
    claim 5 of the patent names: each gradient that was received, as three scalars, and the total time.  Gradients that
    nobody measured (of rounds of reinforcement learning, and of collectors, which have none) are 0.
    """
    known = _received(memory)
    gradients = [known["gradients"].get(name, [0.0] * _GRADIENT) for name in names]
    longer = np.full((len(names), 1), known["longer"])
    return np.hstack([features(histories(memory, names)), np.array(gradients), longer])


def shares(view: BatchView, performance: Sequence[float]) -> BatchPlan:
    """Return the units of each member in proportion to c p, by largest remainder; who had none for long is probed."""
    inner = replace(view, memory=remembered(view.memory)["members"])
    long_hz = speeds(inner, long=True)
    return planned_by(inner, [hz * p for hz, p in zip(long_hz, performance, strict=True)], sharing=by_largest_remainder)


def _received(memory: object) -> Received:
    known = remembered(memory)
    fresh: Received = {**known, "gradients": {}, "longer": 0.0, "mean": []}
    return {**fresh, **known}


def _scalars(report: BatchReport) -> dict[str, list[float]]:
    """Return the figures of each gradient that a step used."""
    rows = zip(report.members, report.norms, report.cosines, report.ages_s, strict=False)
    known = [
        (name, norm, cosine or 0.0, age_s or 0.0)
        for name, norm, cosine, age_s in rows
        if norm and all(math.isfinite(each or 0.0) for each in (norm, cosine, age_s))
    ]
    if not known or report.duration_s <= 0:
        return {}
    largest = max(norm for _, norm, _, _ in known)  # its square could be beyond a float's range
    middle = math.sqrt(math.fsum((norm / largest) ** 2 for _, norm, _, _ in known) / len(known))
    return {
        name: [round(each, _DIGITS) for each in (math.log(norm / largest / middle), cosine, age_s / report.duration_s)]
        for name, norm, cosine, age_s in known
    }


class Patent(Ddqn):
    """Shares members as their long-run speeds times the factors that a network values most.

    The network is a deep double Q-network, trained before and frozen: claims 5 to 7 of the batching patent.  Nothing
    guards it.  Before the first report each factor is 1.  Where gradients are not measured it sees 0 for them.

    Parameters
    ----------
    network
        None: the one that travels with the package.
    """

    name = "patent"

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the units of each member."""
        if view.memory is None:
            return shares(view, [1.0] * len(view.members))
        network = self._network or shipped("patent")
        performance = network.performance(seen(view.memory, [each.id for each in view.members]))
        return shares(view, [float(p) for p in performance])

    def observe(self, memory: object, report: BatchReport) -> Received:
        """Return what is remembered after a report."""
        return after_step(memory, report)
