"""Record rounds for a probe of seats, and compute them again for nothing, in an executor child.

While somebody asks for it, the newest whole round of each task is kept: its fragments as they came.  A trial computes
such a round on a learner of its own, made from the state of the task's: training state is not touched, nothing is
committed, and what the trial made is thrown away.
"""

import contextlib
import gc
import time
from dataclasses import dataclass, field

import numpy as np
import torch

from drlnb.records.errors import NonFinite
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.fragments import Fragment
from drlnb.runtime.children.device import Device
from drlnb.runtime.children.model_cache import Residency
from drlnb.runtime.children.pulse import Pulse
from drlnb.runtime.ipc.frames import Reply, plain, split
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["Trials"]

#: Most tasks whose rounds are tried, and most bytes of all of them.
_TASKS, _BYTES = 4, 256 << 20


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
        self.task = str(row["task"])
        self._row = row
        state, *parts = split(payload, (row["n_state"], *(n_bytes for _, _, n_bytes in row["fragments"])))
        self._state = np.frombuffer(state, dtype=np.uint8)
        self._learner = make_learner(TaskSpec.from_plain(row["spec"]), device=device)
        batches = zip(row["fragments"], parts, strict=True)
        self._fragments = [(collector, Fragment.unpack(header, part)) for (collector, header, _), part in batches]

    def compute(self, pulse: Pulse) -> float:
        """Compute the round from the state that it was recorded with; return its seconds, the state's load left out."""
        learner = self._learner
        learner.restore(self._row["state"], self._state)
        for name, value in self._row["settings"].items():
            learner.set(name, value)
        started = time.perf_counter()
        learner.begin(self._row["round"], self._row["n_timesteps"])
        for collector, fragment in self._fragments:
            learner.stage(collector, fragment)
        with contextlib.suppress(NonFinite):  # a task that is about to fail costs the same time
            learner.finish(pulse.beat)
            learner.published()
        return time.perf_counter() - started


class Trials:
    """Recorded rounds of this executor's tasks, and trials of anybody's.

    Parameters
    ----------
    device
        The executor's: ``cpu`` or ``cuda``.
    pulse
        Reports that a trial is at work.
    models
        The tasks' own.
    """

    def __init__(self, device: Device, pulse: Pulse, models: Residency) -> None:
        self._device, self._pulse, self._models = device, pulse, models
        self._recording = False
        self._open: dict[str, _Round] = {}
        self._whole: dict[str, _Round] = {}
        self._trials: list[_Trial] = []
        #: What answers the frames of a probe.
        self.frames = {
            "trial-export": self._export,
            "trial-load": self._load,
            "trial-run": self._run,
            "trial-end": self._end,
        }

    # ------------------------------------------------------------------ what the executor reports
    def staged(self, header: Plain, payload: memoryview) -> None:
        """Record a fragment that was staged for a task."""
        if not self._recording:
            return
        task, number = header["task"], header["round"]
        if task not in self._open or self._open[task].round != number:
            self._open[task] = _Round(round=number, n_timesteps=header["after_timesteps"], settings=header["settings"])
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
    def record(self, *, on: bool) -> Plain:
        """Begin or end to record; return whose rounds there are, and what the device's memory is (0: it has none)."""
        self._recording = on
        if not on:
            self._open.clear()
            self._whole.clear()
        return {"op": "recorded", "tasks": sorted(self._whole), **self._memory()}

    def _memory(self) -> dict[str, int]:
        if not self._device.on_cuda:
            return {"seat_bytes": 0, "used_bytes": 0, "total_bytes": 0}
        free, total = torch.cuda.mem_get_info()
        return {"seat_bytes": torch.cuda.max_memory_reserved(), "used_bytes": total - free, "total_bytes": total}

    def _export(self, _header: Plain, _payload: memoryview) -> Reply:
        """Return recorded rounds, each with the state of its task's learner as it is now."""
        rows: list[Plain] = []
        payloads: list[Payload | np.ndarray] = []
        n_bytes = 0
        for task, recorded in self._whole.items():
            model = self._models.get(task)
            if model is None or model.version < 1 or len(rows) == _TASKS:
                continue
            meta, state = model.learner.state()
            n_bytes += state.nbytes + recorded.n_bytes
            if rows and n_bytes > _BYTES:
                break
            rows.append({
                "task": task,
                "spec": model.learner.spec.to_plain(),
                **{name: getattr(recorded, name) for name in ("round", "n_timesteps", "settings")},
                "state": plain(meta),
                "n_state": int(state.nbytes),
                "fragments": [[collector, dict(row), len(data)] for collector, row, data in recorded.fragments],
                "n_bytes": int(state.nbytes) + recorded.n_bytes,
            })
            payloads += [state, *(data for _, _, data in recorded.fragments)]
        return {"op": "exported", "trials": rows}, payloads

    def _load(self, header: Plain, payload: memoryview) -> Reply:
        """Make the trials' learners; compute a round, on CUDA one of each, since the first time is like no other."""
        rows = header["trials"]
        parts = split(payload, (row["n_bytes"] for row in rows))
        self._trials = [_Trial(row, part, self._device.name) for row, part in zip(rows, parts, strict=True)]
        for trial in self._trials[: None if self._device.on_cuda else 1]:
            trial.compute(self._pulse)
        return {"op": "loaded", **self._memory()}, []

    def _run(self, header: Plain, _payload: memoryview) -> Reply:
        """Compute rounds in turn for so long, and at least so many; `first` is the number of the first task."""
        if not self._trials:
            raise RuntimeError("no trial was loaded")
        times: dict[str, list[float]] = {}
        started = time.perf_counter()
        n = 0
        while n < header["n_least"] or time.perf_counter() - started < header["measure_s"]:
            trial = self._trials[(header["first"] + n) % len(self._trials)]
            times.setdefault(trial.task, []).append(trial.compute(self._pulse))
            n += 1
        return {"op": "tried", "times": times, "elapsed_s": time.perf_counter() - started, **self._memory()}, []

    def _end(self, _header: Plain, _payload: memoryview) -> Reply:
        self._trials = []
        gc.collect()
        self._device.free()
        return {"op": "ended"}, []
