"""Split units by what a network foresees of each member: the deep double Q-network of the batching patent, frozen."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict, cast

import numpy as np

from drlnb.learned.batching.features import WINDOW, features
from drlnb.learned.batching.network import Array, Network, shipped
from drlnb.planning.batching import BatchPlan, BatchReport, BatchView
from drlnb.planning.batching.estimate import Memory, followed, planned_by, speeds
from drlnb.planning.batching.jump_reset import JumpReset

__all__ = ["Ddqn", "History", "after_report", "histories", "remembered"]

#: Digits of a z that are remembered: noise is a hundred times larger.
_DIGITS = 4


class History(TypedDict):
    """What is remembered of members."""

    members: Memory
    #: Member -> z = log(speed / long-run speed) of its latest splits, the newest last; 0 where it had no share.
    z: dict[str, list[float]]


def after_report(memory: object, report: BatchReport) -> History:
    """Return what is remembered after a report."""
    known = remembered(memory)
    members = followed(known["members"], report, JumpReset.moved)
    newest = {name: math.log(members[name]["latest"]) for name in report.members if name in members}
    z = {name: [*known["z"].get(name, ()), round(newest.get(name, 0.0), _DIGITS)][-WINDOW:] for name in members}
    return {"members": members, "z": z}


def histories(memory: object, names: Sequence[str]) -> Array:
    """Return z of some members, the newest split last and those of who is new begun with 0; shape ``(WINDOW, n)``."""
    known = remembered(memory)["z"]
    z = np.zeros((WINDOW, len(names)))
    for column, name in zip(z.T, names, strict=True):
        if own := known.get(name):
            column[-len(own) :] = own
    return z


def remembered(memory: object) -> History:
    """Return what is remembered: nothing at first."""
    return cast("History", memory or {"members": {}, "z": {}})


class Ddqn:
    """Expects each member at the factor of its long-run speed that a network values most.

    Parameters
    ----------
    network
        None: the one that travels with the package.
    """

    name = "ddqn"
    #: Sums of numpy depend on the processor: a replay reads the plans from the journal.
    exact = False

    def __init__(self, network: Network | None = None) -> None:
        self._network = network

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the units of each member."""
        network = self._network or shipped("ddqn")
        performance = network.performance(features(histories(view.memory, [each.id for each in view.members])))
        inner = replace(view, memory=remembered(view.memory)["members"])
        long_hz = speeds(inner, long=True)
        return planned_by(inner, [hz * float(p) for hz, p in zip(long_hz, performance, strict=True)])

    def observe(self, memory: object, report: BatchReport) -> History:
        """Return what is remembered after a report."""
        return after_report(memory, report)
