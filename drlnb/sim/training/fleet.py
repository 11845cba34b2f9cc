"""Run a whole fleet on the virtual clock: nodes, slots, tasks, deaths, to the end of every task."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.registry import Planners
from drlnb.records.common import SettingChanged
from drlnb.sim.costs import Costs, Workload
from drlnb.sim.driver import Clock
from drlnb.sim.faults import Fault
from drlnb.sim.training.pool import Pool
from drlnb.sim.training.task import Task

__all__ = ["N_STEPS", "run_tasks"]

#: Steps per environment and round, one environment per collector: Stable-Baselines3's PPO default is 2048 in one.
N_STEPS = 256


def run_tasks(
    indices: Sequence[int],
    *,
    n_slots: int,
    n_rounds: int,
    n_collectors: int,
    hold: str,
    seed: int,
    costs: Costs | Mapping[int, Costs],
    n_nodes: int = 1,
    faults: Iterable[Fault] = (),
    until_s: float = math.inf,
    validate: bool = False,
    offsets_s: Mapping[int, float] | None = None,
    settings: LeasingSettings | None = None,
    priorities: Mapping[int, int] | None = None,
    streams: bool = True,
    config: Mapping[str, object] | None = None,
    planners: Planners | None = None,
) -> tuple[Pool, tuple[Task, ...]]:
    """Run the tasks with these indices to their ends, or until `until_s`; an index names a task's durations.

    `faults` come in the order of their times, and may have no end; the pool keeps those that happened.

    `costs` and `offsets_s` (seconds after which a task starts) may differ by index; so may `priorities`.  With
    `streams`, gradients are computed at arrival, so that a slot can be given away in between.  `config`: more of the
    round machine's configuration; `planners`: those that place tasks.  The rest is as for
    :func:`drlnb.sim.training.report.simulate_train`.
    """
    clock = Clock()
    nodes = tuple(f"n{k}" for k in range(n_nodes))
    slots = {f"n{k % n_nodes}/slot{k // n_nodes}": f"n{k % n_nodes}" for k in range(n_slots)}
    settings = settings or LeasingSettings(hold=hold)
    streaming = {"streams": streams, "switch_limit_frac": settings.switch_limit_frac}
    pool = Pool(clock, slots=slots, nodes=nodes, settings=settings, validate=validate, planners=planners)
    tasks = tuple(
        Task(
            clock,
            pool,
            Workload(costs if isinstance(costs, Costs) else costs[i], seed=seed, task=i, n_collectors=n_collectors),
            config=_config(f"sim{i}", n_collectors, n_rounds, hold) | streaming | dict(config or {}),
            node=nodes[0],
            validate=validate,
        )
        for i in indices
    )
    _begin_faults(clock, pool, tasks, iter(faults))
    for i, task in zip(indices, tasks, strict=True):
        if priorities and i in priorities:
            pool.host.feed(SettingChanged, key="task.priority", value=priorities[i], task=task.name)
        clock.after((offsets_s or {}).get(i, 0.0), task.open)
    clock.run(until_s)
    return pool, tasks


def _config(name: str, n_collectors: int, n_rounds: int, hold: str) -> dict[str, object]:
    """Return the constructor arguments of one task's round machine: one environment per collector."""
    return {
        "task": name,
        "n_envs": n_collectors,
        "n_collectors": n_collectors,
        "n_steps": N_STEPS,
        "total_timesteps": n_rounds * n_collectors * N_STEPS,
        "planners": {"hold": hold},
    }


def _begin_faults(clock: Clock, pool: Pool, tasks: Sequence[Task], faults: Iterator[Fault]) -> None:
    """Make faults happen, one after the other, while anything is left to be disturbed."""
    collectors = [(task, i) for task in tasks for i in range(task.now.n_collectors)]

    def holders() -> list[Task]:
        """Return the tasks whose master holds a lease, or if none does, all whose master is up."""
        up = [task for task in tasks if task.is_up]
        return [task for task in up if task.now.fence] or up

    #: Kind -> who can be struck, and what strikes one of them; False if it was spared after all.
    kinds: dict[str, tuple[Callable[[], Sequence[Any]], Callable[[Any, float], bool]]] = {
        "collector": (lambda: collectors, lambda at, _: at[0].kill_collector(at[1])),
        "executor": (lambda: sorted(pool.executors), lambda slot, _: pool.lose_slot(slot)),
        "slot": (lambda: sorted(pool.executors), pool.lose_slot),
        # The first node, the masters' home, is spared.
        "node": (lambda: sorted(pool.live_nodes)[1:], pool.kill_node),
        "holder": (holders, Task.kill),
        "frozen": (holders, Task.freeze),
    }

    def wait() -> None:
        fault = next(faults, None)
        if fault is not None:
            clock.after(max(0.0, fault.t - clock.now), happen, fault)

    def happen(fault: Fault) -> None:
        if all(task.end for task in tasks):
            return
        candidates_of, strike = kinds[fault.kind]
        candidates = candidates_of()
        if candidates and strike(candidates[fault.index % len(candidates)], fault.down_s):
            pool.struck.append(fault)
        wait()

    wait()
