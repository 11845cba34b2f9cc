"""Record rounds for a probe of seats, and compute them again for nothing, in an executor child.

While somebody asks for it, the newest whole round of each task is kept: its fragments as they came.  A trial computes
such a round on a learner of its own, made from the state of the task's: training state is not touched, nothing is
committed, and what the trial made is thrown away.
"""

import gc
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from drlnb.records.errors import NonFinite
from drlnb.records.spec import TaskSpec
from drlnb.runtime.ipc.frames import Reply, plain
from drlnb.runtime.protocol import Payload, Plain

if TYPE_CHECKING:
    from drlnb.rl.algorithms.protocol import Learner

__all__ = ["Trials"]

#: Most tasks whose rounds are tried, and most bytes of all of them.
_TASKS, _BYTES = 4, 256 << 20
#: Shortest time between two progress frames, in seconds.
_PROGRESS_S = 0.5


@dataclass(slots=True, kw_only=True)
class _Round:
    """One round of a task as it came: shape of the batches and all."""

    round: int
    n_timesteps: int
    settings: Plain
    #: (collector, header of the fragment, its bytes).
    fragments: list[tuple[int, Plain, bytes]] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        """Bytes of its fragments."""
        return sum(len(data) for _, _, data in self.fragments)

    def is_whole(self, n_envs: int) -> bool:
        """Whether every environment of the task is in it; a batch from a replay ring is whole by itself."""
        if all("env_indices" not in header for _, header, _ in self.fragments):
            return len(self.fragments) == 1
        return len({index for _, header, _ in self.fragments for index in header["env_indices"]}) == n_envs


class _Trial:
    """A recorded round and the learner that computes it again and again."""

    def __init__(self, row: Plain, payload: memoryview, device: str) -> None:
        from drlnb.rl.algorithms.protocol import make_learner
        from drlnb.rl.fragments import Fragment

        self.task = str(row["task"])
        self._row = row
        self._state = np.frombuffer(payload[: row["n_state"]], dtype=np.uint8)
        self._learner = make_learner(TaskSpec.from_plain(row["spec"]), device=device)
        self._fragments = []
        at = row["n_state"]
        for collector, header, n_bytes in row["fragments"]:
            self._fragments.append((collector, Fragment.unpack(header, payload[at : at + n_bytes])))
            at += n_bytes

    def compute(self, on_minibatch: Callable[[int, int], None]) -> float:
        """Compute the round from the state that it was recorded with; return its seconds, the state's load left out."""
        learner = self._learner
        learner.restore(self._row["state"], self._state)
        for name, value in self._row["settings"].items():
            learner.set(name, value)
        started = time.perf_counter()
        learner.begin(self._row["round"], self._row["n_timesteps"])
        for collector, fragment in self._fragments:
            learner.stage(collector, fragment)
        try:
            learner.finish(on_minibatch)
            learner.published()
        except NonFinite:  # a task that is about to fail costs the same time
            pass
        return time.perf_counter() - started


class Trials:
    """Recorded rounds of this executor's tasks, and trials of anybody's.

    Parameters
    ----------
    device
        ``cpu`` or ``cuda``.
    send
        Sends a progress frame to the agent.
    """

    def __init__(self, device: str, send: Callable[[Plain], None]) -> None:
        self._device, self._send = device, send
        self._recording = False
        self._open: dict[str, _Round] = {}
        self._whole: dict[str, _Round] = {}
        self._trials: list[_Trial] = []

    # ------------------------------------------------------------------ what the executor reports
    def staged(self, header: Plain, payload: memoryview) -> None:
        """Record a fragment that was staged for a task."""
        if not self._recording:
            return
        task, number = header["task"], header["round"]
        if task not in self._open or self._open[task].round != number:
            self._open[task] = _Round(round=number, n_timesteps=header["n_timesteps"], settings=header["settings"])
        row = (int(header["collector"]), header["fragment"], bytes(payload[header["n_state"] :]))
        known = self._open[task].fragments
        known[:] = [batch for batch in known if batch[0] != row[0]]
        known.append(row)

    def finished(self, task: str, spec: TaskSpec) -> None:
        """Keep what was staged of a task's round that was computed, if it is all."""
        done = self._open.pop(task, None)
        if done is not None and done.is_whole(spec.n_envs):
            self._whole[task] = done

    # ------------------------------------------------------------------ what the agent asks
    def record(self, header: Plain) -> Reply:
        """Begin or end to record; return whose rounds there are, and what the device's memory is (0: it has none)."""
        self._recording = bool(header["on"])
        if not self._recording:
            self._open.clear()
            self._whole.clear()
        return {"op": "recorded", "tasks": sorted(self._whole), **self._memory()}, []

    def _memory(self) -> dict[str, int]:
        torch = sys.modules.get("torch")
        if self._device == "cpu" or torch is None:
            return {"seat_bytes": 0, "used_bytes": 0, "total_bytes": 0}
        free, total = torch.cuda.mem_get_info()
        return {"seat_bytes": torch.cuda.max_memory_reserved(), "used_bytes": total - free, "total_bytes": total}

    def answer(self, header: Plain, payload: memoryview, learners: Mapping[str, "Learner"]) -> Reply:
        """Carry out one frame of a probe; `learners` are the tasks' own."""
        op = header["op"]
        if op == "trial-export":
            return self._export(learners)
        if op == "trial-load":
            return self._load(header["trials"], payload)
        if op == "trial-run":
            return self._run(float(header["measure_s"]), int(header["first"]), int(header["n_least"]))
        if op == "trial-end":
            return self._end()
        raise ValueError(f"unknown frame {op!r}")

    def _export(self, learners: Mapping[str, "Learner"]) -> Reply:
        """Return recorded rounds, each with the state of its task's learner as it is now."""
        rows: list[Plain] = []
        payloads: list[Payload | np.ndarray] = []
        n_bytes = 0
        for task, recorded in self._whole.items():
            learner = learners.get(task)
            if learner is None or len(rows) == _TASKS:
                continue
            meta, state = learner.state()
            n_bytes += state.nbytes + recorded.n_bytes
            if rows and n_bytes > _BYTES:
                break
            rows.append({
                "task": task,
                "spec": learner.spec.to_plain(),
                "round": recorded.round,
                "n_timesteps": recorded.n_timesteps,
                "settings": dict(recorded.settings),
                "state": plain(meta),
                "n_state": int(state.nbytes),
                "fragments": [[collector, dict(row), len(data)] for collector, row, data in recorded.fragments],
                "n_bytes": int(state.nbytes) + recorded.n_bytes,
            })
            payloads += [state, *(data for _, _, data in recorded.fragments)]
        return {"op": "exported", "trials": rows}, payloads

    def _load(self, rows: list[Plain], payload: memoryview) -> Reply:
        """Make the trials' learners; compute a round, on CUDA one of each, since the first time is like no other."""
        self._trials = []
        at = 0
        for row in rows:
            self._trials.append(_Trial(row, payload[at : at + row["n_bytes"]], self._device))
            at += row["n_bytes"]
        for trial in self._trials[: 1 if self._device == "cpu" else None]:
            trial.compute(self._progress())
        return {"op": "loaded", **self._memory()}, []

    def _run(self, measure_s: float, first: int, n_least: int) -> Reply:
        """Compute rounds in turn for so long, and at least so many; `first` is the number of the first task."""
        if not self._trials:
            raise RuntimeError("no trial was loaded")
        times: dict[str, list[float]] = {}
        on_minibatch = self._progress()
        started = time.perf_counter()
        n = 0
        while n < n_least or time.perf_counter() - started < measure_s:
            trial = self._trials[(first + n) % len(self._trials)]
            times.setdefault(trial.task, []).append(trial.compute(on_minibatch))
            n += 1
        return {"op": "tried", "times": times, "elapsed_s": time.perf_counter() - started, **self._memory()}, []

    def _end(self) -> Reply:
        self._trials = []
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return {"op": "ended"}, []

    def _progress(self) -> Callable[[int, int], None]:
        """Return what reports now and then that a trial is at work."""
        progress_t = time.perf_counter()

        def on_minibatch(done: int, total: int) -> None:
            nonlocal progress_t
            now = time.perf_counter()
            if now - progress_t >= _PROGRESS_S:
                progress_t = now
                self._send({"op": "progress", "task": "", "n_done": done, "n_total": total})

        return on_minibatch
