"""What came out of a run?  The summary that ``drlnb train --json`` prints, computed from the journal alone; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drlnb.fleet.rows.task_status import split_stream
from drlnb.records import round as words
from drlnb.records.columns import leasing, warmup
from drlnb.records.journal import Journal, Stream
from drlnb.records.spec import TaskSpec

__all__ = ["summarise"]


@dataclass(slots=True)
class _Load:
    """Sums over a task's finished rounds, in seconds."""

    round_s: float = 0.0
    wait_s: float = 0.0
    update_s: float = 0.0

    @property
    def alone_s(self) -> float:
        """How long the rounds would have taken had no slot been waited for."""
        return self.round_s - self.wait_s


@dataclass(slots=True)
class _Leases:
    """Sums over the pool's streams of one run."""

    n_grants: int = 0
    computed_s: float = 0.0
    held_s: float = 0.0
    slot_s: float = 0.0
    n_slots: int = 0
    #: Seconds for which an estimate of theory held, and its utilisation and inflation times these seconds.
    estimated_s: float = 0.0
    expected_utilisation_s: float = 0.0
    expected_inflation_s: float = 0.0


def summarise(run: str, specs: Sequence[TaskSpec], journal: Journal) -> dict[str, Any]:
    """Return the summary of a run as plain data.

    ``utilisation`` = seconds computing / (slots x seconds from the first grant to the last release); ``held`` the same
    with seconds held.  With `g` = seconds computing and `d` = g / (round - lease wait), both summed over a task's
    rounds, ``bound`` = min(1, sum of d / slots) and ``inflation`` = mean over tasks of round / (round - lease wait):
    estimates from within one run (`d` measured alone is the stricter one).  ``expected_utilisation`` and
    ``expected_inflation`` are what queueing theory expected of the pool's load, each estimate weighed by the time for
    which it held between the first grant and the last release.  What cannot be said is None.

    Parameters
    ----------
    run
        The run's id.
    specs
        Its tasks.
    journal
        All of its streams.
    """
    by_task = {spec.name: _attempts(spec.name, journal) for spec in specs}
    loads = [_load(attempts) for attempts in by_task.values()]
    leases = _leases(run, {spec.name for spec in specs}, journal)
    measured = [load for load in loads if load.alone_s > 0]
    n_slots = leases.n_slots
    holds = journal.of(leasing.HoldPlanned)
    return {
        "run": run,
        "tasks": [_task(spec, by_task[spec.name]) for spec in specs],
        "leases": {
            "grants": leases.n_grants,
            "utilisation": _share(leases.computed_s, leases.slot_s),
            "held": _share(leases.held_s, leases.slot_s),
            "bound": min(1.0, sum(m.update_s / m.alone_s for m in measured) / n_slots)
            if measured and n_slots
            else None,
            "inflation": sum(m.round_s / m.alone_s for m in measured) / len(measured) if measured else None,
            "expected_utilisation": _share(leases.expected_utilisation_s, leases.estimated_s),
            "expected_inflation": _share(leases.expected_inflation_s, leases.estimated_s),
            "hold_planner": holds[-1].planner if holds else None,
        },
    }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _attempts(task: str, journal: Journal) -> list[Stream]:
    """Return the streams of a task's attempts, oldest first."""
    found = []
    for name, stream in journal.streams.items():
        named = split_stream(name)
        if named is not None and named[0] == task:
            found.append((named[1], stream))
    return [stream for _, stream in sorted(found, key=lambda pair: pair[0])]


def _of(attempts: Iterable[Stream], *kinds: type[Any]) -> list[Any]:
    return [record for stream in attempts for record in stream.of(*kinds)]


def _task(spec: TaskSpec, attempts: Sequence[Stream]) -> dict[str, Any]:
    rounds = _of(attempts, words.MetricsRecorded)
    metrics: Mapping[str, Any] = rounds[-1].metrics if rounds else {}
    timesteps = rounds[-1].n_timesteps if rounds else 0
    seconds = float(metrics.get("time/time_elapsed", 0.0))
    evaluations = [e for e in _of(attempts, words.EvaluationFinished) if not e.failure and e.deterministic]
    unended = [stream for stream in attempts[:-1] if not stream.of(words.EndTask)]
    return {
        "name": spec.name,
        "env": spec.env,
        "seed": spec.seed,
        "timesteps": timesteps,
        "ep_rew_mean": metrics.get("rollout/ep_rew_mean"),
        "eval_mean_reward": evaluations[-1].mean_reward if evaluations else None,
        "seconds": seconds,
        "steps_per_s": _share(timesteps, seconds),
        "restarts": len(_of(attempts, warmup.CollectorRestartPlanned, words.ExecutorDied)) + len(unended),
    }


def _load(attempts: Iterable[Stream]) -> _Load:
    load = _Load()
    for record in _of(attempts, words.MetricsRecorded):
        load.round_s += record.metrics.get("round/time_s", 0.0)
        load.wait_s += record.metrics.get("round/wait_lease_s", 0.0)
        load.update_s += record.metrics.get("round/update_s", 0.0)
    return load


def _leases(run: str, tasks: set[str], journal: Journal) -> _Leases:
    total = _Leases()
    for stream in journal.streams.values():
        if stream.header.machine == "pool":
            _add_pool(run, tasks, stream, total)
    return total


def _add_pool(run: str, tasks: set[str], stream: Stream, total: _Leases) -> None:
    """Add one broker's stream; a pool may serve other runs, too: only our leases count."""
    table = (stream.header.snapshot or {}).get("table", {})
    slots = {slot["name"] for slot in table.get("slots", ())}
    slots |= {event.slot for event in stream.of(leasing.SlotAdded)}
    first_t: float | None = None
    last_t = 0.0
    estimates: list[tuple[float, leasing.LoadEstimated]] = []
    for event, answer in stream.answers():
        for record in answer:
            if isinstance(record, leasing.LoadEstimated):
                estimates.append((event.t, record))
            if not isinstance(record, leasing.LeaseGranted | leasing.LeaseReleased | leasing.LeaseExpired):
                continue
            owner, _, task = record.task.rpartition("/")
            if task not in tasks or owner not in {"", run}:
                continue
            if isinstance(record, leasing.LeaseGranted):
                total.n_grants += 1
                first_t = event.t if first_t is None else first_t
                continue
            last_t = event.t
            total.held_s += record.held_s
            total.computed_s += record.computed_s if isinstance(record, leasing.LeaseReleased) else 0.0
    if first_t is not None:
        total.n_slots = max(total.n_slots, len(slots))
        total.slot_s += len(slots) * max(0.0, last_t - first_t)
        _add_estimates(estimates, first_t, last_t, total)


def _add_estimates(
    estimates: Sequence[tuple[float, leasing.LoadEstimated]], first_t: float, last_t: float, total: _Leases
) -> None:
    """Add what theory expected between two seconds, each estimate until the next one."""
    ends = [*(t for t, _ in estimates[1:]), last_t]
    for (t, one), end_t in zip(estimates, ends, strict=False):
        held_s = max(0.0, min(end_t, last_t) - max(t, first_t))
        total.estimated_s += held_s
        total.expected_utilisation_s += held_s * one.expected_utilisation_frac
        total.expected_inflation_s += held_s * one.expected_inflation
