"""Run an executor child: own one slot, keep every task's model on it, compute for one lease at a time.

It checks the fence of each piece of work itself (leasing O3): whoever lost the lease is refused here, whatever anybody
else believes.  It imports torch, never Dask.
"""

import argparse
import contextlib
import math
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from drlnb.planning.leasing.fence import FenceGate
from drlnb.records.errors import NonFinite
from drlnb.records.ids import Fence
from drlnb.records.spec import TaskSpec
from drlnb.runtime.children.model_cache import MEMORY_FRAC, Model, Residency
from drlnb.runtime.children.seat_trials import Trials
from drlnb.runtime.children.user_functions import Jobs
from drlnb.runtime.ipc.frames import FrameSocket, Reply, plain
from drlnb.runtime.ipc.lifeline import become, watch
from drlnb.runtime.ipc.shared_results import attached
from drlnb.runtime.protocol import Plain
from drlnb.runtime.swapping.store import SwapPlans

if TYPE_CHECKING:
    from drlnb.rl.networks.layout import Layout

__all__ = ["ExecutorChild", "main"]

#: Shortest time between two progress frames, in seconds: the agent's watchdog counts tens of seconds.
_PROGRESS_S = 0.5


class _RevokedError(Exception):
    """The lease of the round that is being computed was taken away."""


class ExecutorChild:
    """Answers the agent's frames, one at a time.

    Parameters
    ----------
    channel, device
        Its end of the pair; ``cpu`` or ``cuda``.
    budget_bytes
        What the models of all tasks may take together between leases.
    """

    def __init__(self, channel: FrameSocket, device: str, budget_bytes: float = math.inf) -> None:
        self.channel = channel
        self.device = device
        self.gate = FenceGate()
        self.models = Residency(budget_bytes)
        self.swaps = SwapPlans()
        #: Nothing of a lease up to this one is computed any more.
        self._revoked: Fence | None = None
        self.jobs = Jobs(device, channel.send, self._look)
        #: Frames that came while a user's function ran.
        self._later: deque[tuple[Plain, memoryview]] = deque()
        self.trials = Trials(device, channel.send)

    def receive(self) -> tuple[Plain, memoryview]:
        """Wait for the next frame.

        Raises
        ------
        EOFError
            If the agent is gone.
        """
        return self._later.popleft() if self._later else self.channel.receive()

    def _look(self) -> None:
        """Read what has come while a function runs: its holder may be asked to give way, the rest waits for its end."""
        with contextlib.suppress(EOFError):  # then the life line ends this process
            while self.channel.waiting:
                header, payload = self.channel.receive()
                if header["op"] in {"asked", "revoked"}:
                    self._at_any_time(header)
                else:
                    self._later.append((header, payload))

    def answer(self, header: Plain, payload: memoryview) -> Reply:
        """Carry out one frame and return the answer's header and payloads."""
        op = header["op"]
        if op in {"evict", "record", "asked", "own", "revoked"}:
            return self._at_any_time(header)
        fence = header["fence"]
        if op == "job-end":
            return self.jobs.end(fence), []
        refusal = self.gate.admit(fence)
        if refusal:
            return {"op": "refused", "reason": refusal}, []
        self.jobs.only(fence)
        if op == "job":
            return self.jobs.run(header, payload, fence)
        if op == "initialise":
            return self._initialise(header)
        if op == "stage":
            return self._stage(header, payload, fence)
        if op == "restore":
            return self._restore(header, payload, fence)
        if op == "finish":
            return self._finish(header, fence)
        if op.startswith("trial-"):
            learners = {task: model.learner for task, model in self.models if model.version > 0}
            return self.trials.answer(header, payload, learners)
        raise ValueError(f"unknown frame {op!r}")

    def _at_any_time(self, header: Plain) -> Reply:
        """Answer what needs no lease: it changes no parameters."""
        if header["op"] == "record":
            return self.trials.record(header)
        if header["op"] == "own":
            become(f"drlnb executor {header['slot']} {header['task']}")
            return {"op": "noted"}, []
        if header["op"] == "asked":
            self.jobs.asked(header["fence"])
            return {"op": "noted"}, []
        if header["op"] == "revoked":
            self._revoked = max(header["fence"], self._revoked or header["fence"])
            return {"op": "noted"}, []
        if self.models.drop(header["task"]):
            self.jobs.evicted()
        return {"op": "evicted"}, []

    def _model(self, header: Plain) -> Model:
        from drlnb.rl.algorithms.protocol import make_learner

        return Model(make_learner(TaskSpec.from_plain(header["spec"]), device=self.device))

    def _sized(self, task: str, n_state: int) -> None:
        """Make room for a task's model, if the budget asks for it."""
        if self.models.sized(task, n_state):
            self.jobs.evicted()
            if self.device.startswith("cuda"):
                import torch

                torch.cuda.empty_cache()  # for the other executors of this device

    def _initialise(self, header: Plain) -> Reply:
        started = time.perf_counter()
        model = self._model(header)
        model.version = 1
        self.models.put(header["task"], model)
        return self._made(model, {}, started, header)

    def _ready(self, header: Plain, payload: memoryview, fence: Fence) -> Model | None:
        """Return the task's model with its round open under this fence; None if its state is not here."""
        task, version = header["task"], header["version"]
        model = self.models.use(task)
        with _state_of(header, payload) as state:
            if state is not None:
                model = model or self._model(header)
                self.models.put(task, model)
                self._sized(task, len(state))
                model.learner.restore(header["state"], state)
                model.version, model.staging = version, None
                model.parts.clear()
            elif model is None or model.version != version:
                return None
        if model.staging != (fence, header["round"]):
            for name, value in header["settings"].items():
                model.learner.set(name, value)
            model.learner.begin(header["round"], header["n_timesteps"])
            model.staging = (fence, header["round"])
        return model

    def _stage(self, header: Plain, payload: memoryview, fence: Fence) -> Reply:
        n_state = header["n_state"]
        model = self._ready(header, payload, fence)
        if model is None:
            return {"op": "need-state"}, []
        from drlnb.rl.fragments import Fragment

        started = time.perf_counter()
        fragment = Fragment.unpack(header["fragment"], payload[n_state:])
        with self.swaps.around(header.get("swap_plan_key")):
            model.learner.stage(header["collector"], fragment)
        self.trials.staged(header, payload)
        answer = {"op": "staged", "elapsed_s": time.perf_counter() - started, "moved_bytes": _moved(header)}
        if not header.get("keep"):
            return answer, []
        part = model.learner.export_partial(fragment.header["env_indices"]).to_bytes()
        model.parts[f"{header['round']}/{header['collector']}/{fence.token}"] = part
        return answer, [part]

    def _restore(self, header: Plain, payload: memoryview, fence: Fence) -> Reply:
        """Restore gradients of this round that were computed under former leases, here or elsewhere."""
        started = time.perf_counter()
        model = self._ready(header, payload, fence)
        if model is None:
            return {"op": "need-state"}, []
        from drlnb.rl.fragments import Fragment

        keys, at = header["keys"], header["n_state"]
        for key, size in zip(keys, header["sizes"], strict=False):
            model.parts[key] = bytes(payload[at : at + size])
            at += size
        if any(key not in model.parts for key in keys):
            return {"op": "need-parts"}, []
        for key in keys:
            model.learner.import_partial(Fragment.from_bytes(model.parts[key]))
        moved = at - header["n_state"] + _moved(header)
        return {"op": "restored", "elapsed_s": time.perf_counter() - started, "moved_bytes": moved}, []

    def _finish(self, header: Plain, fence: Fence) -> Reply:
        started = time.perf_counter()
        model = self.models.use(header["task"])
        if model is None or model.staging != (fence, header["round"]):
            return {"op": "refused", "reason": "nothing is staged under this fence"}, []
        version, model.version, model.staging = model.version, -1, None
        model.parts.clear()
        progress_t = started

        def on_minibatch(done: int, total: int) -> None:
            nonlocal progress_t
            self._look()
            if self._revoked is not None and fence <= self._revoked:
                raise _RevokedError
            now = time.perf_counter()
            if now - progress_t >= _PROGRESS_S:
                progress_t = now
                self.channel.send({"op": "progress", "task": header["task"], "n_done": done, "n_total": total})

        try:
            with self.swaps.around(header.get("swap_plan_key")):
                metrics = model.learner.finish(on_minibatch)
        except NonFinite as error:
            model.version = version
            return {"op": "error", "kind": "NonFinite", "message": str(error), "detail": ""}, []
        except _RevokedError:  # the learner has undone the update
            model.version = version
            return {"op": "refused", "reason": "the lease was taken away while the round was computed"}, []
        model.version = version + 1
        self.trials.finished(header["task"], model.learner.spec)
        return self._made(model, metrics, started, header)

    def _made(self, model: Model, metrics: Plain, started: float, header: Plain) -> Reply:
        published = model.learner.published()
        meta, state = model.learner.state()
        self._sized(header["task"], state.nbytes)
        n_bytes = _put(header.get("into"), published, state)
        answer = {
            "op": "made",
            "n_published": int(published.nbytes),
            "n_shared": n_bytes,
            "state": plain(meta) | _module_layout(model.learner.layout),
            "metrics": plain(metrics),
            "elapsed_s": time.perf_counter() - started,
        }
        return answer, [] if n_bytes else [published, state]


@contextlib.contextmanager
def _state_of(header: Plain, payload: memoryview) -> Iterator[np.ndarray | None]:
    """Yield the training state that came with a frame, or that it names the place of; None if there is none."""
    if "state_in" in header:
        path, start, n_bytes = header["state_in"]
        with attached(path, start + n_bytes) as shared:
            yield shared[start:]
    elif header["n_state"]:
        yield np.frombuffer(payload[: header["n_state"]], dtype=np.uint8)
    else:
        yield None


def _moved(header: Plain) -> int:
    """Return the bytes of training state that this frame brought here."""
    return int(header["state_in"][2] if "state_in" in header else header["n_state"])


def _put(into: tuple[str, int] | None, published: np.ndarray, state: np.ndarray) -> int:
    """Put a result into the segment that is lent for it; return its bytes, 0 if it must travel in the frame."""
    n_published, n_bytes = published.nbytes, published.nbytes + state.nbytes
    if into is None or into[1] < n_bytes:
        return 0
    try:
        with attached(into[0], n_bytes, write=True) as shared:
            shared[:n_published] = published
            shared[n_published:] = state
    except OSError:
        return 0
    return n_bytes


def _module_layout(layout: "Layout") -> Plain:
    """Return a torch module's layout as a fact of its learner: the master, which has no torch, cannot derive it."""
    if layout.activation != "module":
        return {}
    from drlnb.rl.checkpoints.files import LAYOUT
    from drlnb.rl.checkpoints.trained import describe_layout

    return {LAYOUT: describe_layout(layout)}


def _budget_bytes(device: str, memory_bytes: int, n_sharing: int) -> float:
    """Return what the models of one of `n_sharing` executors of a device may take; `memory_bytes` is the machine's."""
    total = memory_bytes
    if device.startswith("cuda"):
        import torch

        total = torch.cuda.mem_get_info()[1]
    return MEMORY_FRAC * total / n_sharing


def _serve(sock: socket.socket, slot: str, device: str, memory_bytes: int, n_sharing: int) -> None:
    import torch

    torch.set_num_threads(1)
    import drlnb.rl.algorithms.protocol  # noqa: F401

    channel = FrameSocket(sock)
    watch(sock)
    child = ExecutorChild(channel, device, _budget_bytes(device, memory_bytes, n_sharing))
    child.jobs.begin()
    name = torch.cuda.get_device_name(0) if device.startswith("cuda") else "cpu"
    channel.send({"op": "up", "pid": os.getpid(), "slot": slot, "device_name": name})
    channel.serve(child.answer, child.receive)


def main() -> None:
    """Run as ``executor --fd N --slot NAME --device cpu|cuda --memory BYTES --sharing N``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--slot", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--sharing", type=int, required=True)
    arguments = parser.parse_args()
    become(f"drlnb executor {arguments.slot}")
    sock = socket.socket(fileno=arguments.fd)
    _serve(sock, arguments.slot, arguments.device, arguments.memory, arguments.sharing)


if __name__ == "__main__":
    main()
