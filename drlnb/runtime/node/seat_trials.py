"""Serve the probes of a node's devices; nothing is decided here.

It starts executors that the pool does not lend yet, has executors record and try rounds, and gives the executors that
the pool wants to the agent, or ends them.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import cast

import psutil
from distributed.system import MEMORY_LIMIT

from drlnb.planning.seats.rules import percentile
from drlnb.records.ids import Fence
from drlnb.runtime.ipc.frames import Answer, split
from drlnb.runtime.node.executor_host import Executor
from drlnb.runtime.node.slots import Slots
from drlnb.runtime.protocol import Handler, Payload, Plain, table

__all__ = ["SeatTrials"]

#: Longest wait for an executor's start, in seconds: it imports torch, perhaps beside others.
_UP_S = 60.0
#: Longest time without progress of a trial, in seconds.
_QUIET_S = 60.0


class SeatTrials:
    """Executors and trials of a node's devices.

    Parameters
    ----------
    slots
        The node's.
    node
        Its name.
    """

    def __init__(self, slots: Slots, node: str) -> None:
        self._slots, self._node = slots, node
        #: Rounds under trial: rows and bytes; None between two probes.
        self.trials: tuple[list[Plain], bytes] | None = None
        #: Slots whose executors have loaded them.
        self.loaded: set[str] = set()

    def handlers(self) -> dict[str, Handler]:
        """Return the messages served here."""
        return table(self, "seats_raise", "seats_record", "seats_measure", "seats_end")

    async def seats_raise(self, slots: Sequence[Mapping[str, str]]) -> Plain:
        """Have an executor up for each slot; return what memory they use, or raise ConnectionError."""
        await self._slots.serve(slots)
        executors = self._of([slot["slot"] for slot in slots])
        await asyncio.gather(*(executor.wait_up(_UP_S) for executor in executors))
        return _memory(executors, await _recorded(executors))

    def _of(self, slots: Sequence[str]) -> list[Executor]:
        here = self._slots.executors  # no slot has a process per task where devices get as many seats as pay
        if missing := [slot for slot in slots if slot not in here]:
            raise ConnectionError(f"no executor serves {', '.join(missing)} on {self._node}")
        return [cast("Executor", here[slot]) for slot in slots]

    async def seats_record(self, slots: Sequence[str]) -> Plain:
        """Have executors record; return the tasks of which they have a round, or raise ConnectionError."""
        answers = await _recorded(self._of(slots))
        return {"tasks": sorted({task for answer in answers for task in answer["tasks"]})}

    async def seats_measure(
        self, lent: Sequence[str], slots: Sequence[str], fences: Mapping[str, Fence], measure_s: float
    ) -> Plain:
        """Have the executors of `slots` compute what those of the `lent` ones have recorded.

        Raises
        ------
        ConnectionError
            If an executor is gone, refuses or raises, or nothing has been recorded.
        """
        if self.trials is None:
            self.trials = await self._export(lent, fences)
        rows, payload = self.trials
        executors = self._of(slots)
        fresh = [executor for executor in executors if executor.slot not in self.loaded]
        await asyncio.gather(*(_ask(executor, fences, "trial-load", payload, trials=rows) for executor in fresh))
        self.loaded.update(executor.slot for executor in fresh)
        n_least = len(rows) if len(executors) == 1 else 1
        tried = await asyncio.gather(*(
            _ask(executor, fences, "trial-run", b"", measure_s=measure_s, first=i, n_least=n_least)
            for i, executor in enumerate(executors)
        ))  # fmt: skip
        return _tried([answer for answer, _ in tried])

    async def _export(self, lent: Sequence[str], fences: Mapping[str, Fence]) -> tuple[list[Plain], bytes]:
        """Collect recorded rounds from the executors that the pool lends, one of each task."""
        rows: dict[str, Plain] = {}
        parts: list[bytes] = []
        for executor in self._of(lent):
            answer, payload = await _ask(executor, fences, "trial-export", b"")
            sizes = (row["n_bytes"] for row in answer["trials"])
            for row, part in zip(answer["trials"], split(memoryview(payload), sizes), strict=True):
                if row["task"] not in rows:
                    rows[row["task"]] = row
                    parts.append(bytes(part))
        if not rows:
            raise ConnectionError("no task has computed a whole round here")
        return list(rows.values()), b"".join(parts)

    async def seats_end(
        self, lent: Sequence[str], adopt: Sequence[str], ends: Sequence[str], fences: Mapping[str, Fence]
    ) -> None:
        """Forget the trials; report some executors to the pool, and end others for good."""
        self.trials, loaded, self.loaded = None, self.loaded, set()
        for slot in ends:
            executor = self._slots.executors.pop(slot, None)
            if executor is not None:
                await executor.end()
        for slot in [*lent, *adopt]:
            if slot not in self._slots.executors:
                continue
            (executor,) = self._of([slot])
            # One that died meanwhile has nothing to forget, and will report itself that it is up again.
            await asyncio.gather(self._forget(executor, fences, was_loaded=slot in loaded), return_exceptions=True)
            if slot in adopt:
                self._slots.report_up(executor)

    async def _forget(self, executor: Executor, fences: Mapping[str, Fence], *, was_loaded: bool) -> None:
        await executor.record(on=False)
        if was_loaded:
            await _ask(executor, fences, "trial-end", b"")


async def _recorded(executors: Sequence[Executor]) -> list[Plain]:
    """Have executors record; return what each has."""
    return await asyncio.gather(*(executor.record(on=True) for executor in executors))


async def _ask(executor: Executor, fences: Mapping[str, Fence], op: str, payload: Payload, **header: object) -> Answer:
    """Ask an executor under its fence (one that the pool does not lend takes any).

    Raises
    ------
    ConnectionError
        If it is gone, or refuses, or raises.
    """
    fence = fences.get(executor.slot) or max(fences.values())
    answer, made = await executor.ask({**header, "op": op, "fence": fence, "task": ""}, payload, timeout_s=_QUIET_S)
    if answer["op"] in {"refused", "error"}:
        raise ConnectionError(f"executor {executor.slot}: {answer.get('reason') or answer.get('message')}")
    return answer, made


def _tried(answers: Sequence[Plain]) -> Plain:
    """Join what executors did together: rounds and seconds of each, percentiles over all."""
    times: dict[str, list[float]] = {}
    for task, measured in itertools.chain.from_iterable(answer["times"].items() for answer in answers):
        times.setdefault(task, []).extend(measured)
    return {
        "elapsed_s": [float(answer["elapsed_s"]) for answer in answers],
        "n_rounds": [{task: len(measured) for task, measured in answer["times"].items()} for answer in answers],
        "compute_p50_s": {task: percentile(measured, 0.5) for task, measured in times.items()},
        "compute_p95_s": {task: percentile(measured, 0.95) for task, measured in times.items()},
    }


def _memory(executors: Sequence[Executor], answers: Sequence[Plain]) -> dict[str, int]:
    """Return memory of an executor (the largest), in use by anybody, and in all: the device's, or RAM."""
    total = max(int(answer["total_bytes"]) for answer in answers)
    if total:
        used = max(int(answer["used_bytes"]) for answer in answers)
        # A context is not in torch's count: at least an equal share of what is in use.
        seat = max(max(int(answer["seat_bytes"]) for answer in answers), used // len(executors))
        return {"seat_bytes": seat, "used_bytes": used, "total_bytes": total}
    total = int(MEMORY_LIMIT)
    used = max(0, total - int(psutil.virtual_memory().available))
    return {"seat_bytes": max(map(_rss, executors)), "used_bytes": used, "total_bytes": total}


def _rss(executor: Executor) -> int:
    """Return the resident memory of an executor's largest process, or raise ConnectionError."""
    try:
        return max((psutil.Process(pid).memory_info().rss for pid in executor.pids), default=0)
    except psutil.NoSuchProcess:
        raise ConnectionError(f"executor {executor.slot} has ended") from None
