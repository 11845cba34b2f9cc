"""Compare planners on the same windows of a trace and the same faults, with intervals over windows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from drlnb.planning.placement import Cluster, ClusterView, Pick
from drlnb.planning.registry import Planner
from drlnb.records.settings import FLAG, Declared, between, choice, count, setting
from drlnb.sim.placement.attempts import Outcome
from drlnb.sim.placement.faults import FaultModel
from drlnb.sim.placement.play import simulate
from drlnb.sim.placement.traces import FAMILIES, Trace, Window
from drlnb.views.placement.compared import Ratio

__all__ = ["Played", "Windows", "ratio_of", "side_by_side"]

#: Samples of a bootstrap.
_SAMPLES = 2000
_MANY = count(1, 1_000_000)
#: Of each window the outcomes of each way to place, a path each; without attempts, which would be millions.
Played = Sequence[Mapping[str, Sequence[Outcome]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows(Declared):
    """Which jobs of a trace are played, and how often."""

    family: str = setting("gang", choice(*FAMILIES))
    #: Jobs of a window.
    n_jobs: int = setting(64, _MANY)
    #: Windows, and fault paths of each.  Windows share no job: where there are fewer, each has more paths.
    n_windows: int = setting(20, _MANY)
    n_paths: int = setting(2, _MANY)
    #: Longer durations are cut, and larger gangs.
    cap_s: float = setting(86_400.0, between(1, 1e9))
    max_gpus: int = setting(32, _MANY)
    #: Jobs are submitted when they were; else all at once.
    arrivals: bool = setting(False, FLAG)
    #: Of rates and faults.
    seed: int = setting(0, count(0, 2**31 - 1))

    def cut(self, trace: Trace) -> list[Window]:
        """Return the windows, evenly spread over the trace; ConfigError if there is none."""
        n_there = max(1, len(trace.families[self.family]) // self.n_jobs)
        n = min(self.n_windows, n_there)
        how = {name: value for name, value in asdict(self).items() if name not in {"n_windows", "n_paths", "seed"}}
        return [trace.window(n_there * i // n * self.n_jobs, **how) for i in range(n)]


def side_by_side(
    trace: Trace,
    cluster: Cluster,
    model: FaultModel,
    windows: Windows,
    ways: Mapping[str, tuple[str | Planner[ClusterView, Pick | None], Mapping[str, object]]],
) -> Played:
    """Play windows under each way to place, all on the same faults.

    Parameters
    ----------
    trace
        Where the jobs are from.
    cluster, model
        Slots, and how they fail; rates are drawn anew for each path.
    windows
        Which jobs.
    ways
        Name -> planner, and what holds for it as of :func:`~drlnb.sim.placement.play.simulate`.

    Raises
    ------
    ConfigError
        If the family has not so many jobs as a window, or one needs more slots than there are.
    """
    chosen, played = windows.cut(trace), list[dict[str, list[Outcome]]]()
    n_paths = math.ceil(windows.n_windows * windows.n_paths / len(chosen))
    for number, window in enumerate(chosen):
        outcomes: dict[str, list[Outcome]] = {name: [] for name in ways}
        for k in range(n_paths):
            seed = (windows.seed << 32) + number * n_paths + k
            path = model.path(model.rates(cluster, seed=seed), seed=seed, cluster=cluster)
            for name, (planner, how) in ways.items():
                outcomes[name].append(replace(simulate(cluster, window, planner, path, **how), attempts=()))
        played.append(outcomes)
    return played


def ratio_of(played: Played, name: str, base: str, figure: str = "makespan_s", *, of_sums: bool = False) -> Ratio:
    """Return how a figure of one way to place compares with that of another.

    Parameters
    ----------
    played
        As of :func:`side_by_side`.
    name, base
        Two ways.
    figure
        An attribute of the outcomes.
    of_sums
        The ratio of the sums over all runs, for figures that may be 0; else the geometric mean of each run's ratio.
    """

    def values(window: Mapping[str, Sequence[Outcome]], way: str) -> list[float]:
        return [getattr(outcome, figure) for outcome in window[way]]

    if of_sums:
        sums = [(sum(values(window, name)), sum(values(window, base))) for window in played]
    else:
        logs = [np.log(np.divide(values(window, name), values(window, base))) for window in played]
        sums = [(float(some.sum()), len(some)) for some in logs]
    above, below = np.array(sums).T
    drawn = np.random.default_rng(0).integers(len(sums), size=(_SAMPLES, len(sums)))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.append(above.sum() / below.sum(), above[drawn].sum(1) / below[drawn].sum(1))
    ratios = ratios if of_sums else np.exp(ratios)
    low, high = np.quantile(ratios[1:], (0.025, 0.975)) if len(sums) > 1 else (math.nan, math.nan)
    return Ratio(float(ratios[0]), float(low), float(high), len(sums))
