"""How is a whole fleet run on the virtual clock: nodes, slots, tasks, deaths, to the end of every task?"""

from collections.abc import Mapping, Sequence
from typing import Any

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.common import SettingChanged
from drlnb.sim.costs import Costs, Workload
from drlnb.sim.driver import Clock
from drlnb.sim.faults import Fault
from drlnb.sim.pool import Pool
from drlnb.sim.task import Task

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
    faults: Sequence[Fault] = (),
    validate: bool = False,
    offsets_s: Mapping[int, float] | None = None,
    settings: LeasingSettings | None = None,
    priorities: Mapping[int, int] | None = None,
    streams: bool = True,
) -> tuple[Pool, tuple[Task, ...]]:
    """Run the tasks with these indices to their ends; an index names a task's durations.

    `costs` and `offsets_s` (seconds after which a task starts) may differ by index; so may `priorities`.  With
    `streams`, gradients are computed at arrival, so that a slot can be given away in between.  The rest is as for
    :func:`drlnb.sim.train.simulate_train`.
    """
    clock = Clock()
    nodes = tuple(f"n{k}" for k in range(n_nodes))
    slots = {f"n{k % n_nodes}/slot{k // n_nodes}": f"n{k % n_nodes}" for k in range(n_slots)}
    settings = settings or LeasingSettings(hold=hold)
    streaming = {"streams": streams, "switch_limit_frac": settings.switch_limit_frac}
    pool = Pool(clock, slots=slots, nodes=nodes, settings=settings, validate=validate)
    tasks = tuple(
        Task(
            clock,
            pool,
            Workload(costs if isinstance(costs, Costs) else costs[i], seed=seed, task=i, n_collectors=n_collectors),
            config=_config(f"sim{i}", n_collectors, n_rounds, hold) | streaming,
            node=nodes[0],
            validate=validate,
        )
        for i in indices
    )
    for fault in faults:
        clock.after(fault.t, _kill, clock, pool, tasks, fault)
    for i, task in zip(indices, tasks, strict=True):
        if priorities and i in priorities:
            pool.host.feed(SettingChanged, key="task.priority", value=priorities[i], task=task.name)
        clock.after((offsets_s or {}).get(i, 0.0), task.open)
    clock.run()
    return pool, tasks


def _config(name: str, n_collectors: int, n_rounds: int, hold: str) -> dict[str, Any]:
    """Return the constructor arguments of one task's round machine: one environment per collector."""
    return {
        "task": name,
        "n_envs": n_collectors,
        "n_collectors": n_collectors,
        "n_steps": N_STEPS,
        "total_timesteps": n_rounds * n_collectors * N_STEPS,
        "planners": {"hold": hold},
    }


def _kill(clock: Clock, pool: Pool, tasks: Sequence[Task], fault: Fault) -> None:
    """Carry a death out, while anything is left to be disturbed."""
    if all(task.end for task in tasks):
        return
    if fault.kind == "collector":
        members = [(task, i) for task in tasks for i in task.machine.crew.members]
        task, i = members[fault.index % len(members)]
        task.kill_collector(i, "killed")
    elif fault.kind == "executor":
        pool.kill_executor(sorted(pool.executors)[fault.index % len(pool.executors)], "killed")
    else:
        # The first node, the masters' home, is spared.
        candidates = sorted(pool.live_nodes)[1:]
        if candidates:
            node = candidates[fault.index % len(candidates)]
            pool.kill_node(node, "killed")
            clock.after(fault.down_s, pool.add_node, node)
