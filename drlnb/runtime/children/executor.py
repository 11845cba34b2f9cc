"""Run an executor child: own one slot, keep every task's model on it, compute for one lease at a time.

It checks the fence of each piece of work itself (leasing O3): whoever lost the lease is refused here, whatever anybody
else believes.  It imports torch, never Dask.
"""

import contextlib
import os
import socket
import sys
import time
from collections import deque
from operator import itemgetter

import torch

from drlnb.planning.leasing.fence import FenceGate
from drlnb.records.errors import NonFinite
from drlnb.records.ids import Fence
from drlnb.records.spec import FitWork, RlWork, read_work
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.checkpoints.files import LAYOUT, describe_layout
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import Layout
from drlnb.runtime.children.data_sets import DataSets
from drlnb.runtime.children.device import Device, short
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.children.model_cache import Model, Residency
from drlnb.runtime.children.padding import Padding
from drlnb.runtime.children.pulse import Pulse
from drlnb.runtime.children.shares.frames import Shares
from drlnb.runtime.children.shares.minibatches import MemberGone, Minibatches
from drlnb.runtime.children.user_functions import Jobs
from drlnb.runtime.ipc.frames import FrameSocket, Reply, plain, split
from drlnb.runtime.ipc.lifeline import become
from drlnb.runtime.ipc.shared_memory import moved_bytes, put_into, state_of
from drlnb.runtime.protocol import Plain
from drlnb.runtime.swapping.memory import budget_problem

__all__ = ["ExecutorChild", "main"]


class _RevokedError(Exception):
    """The lease of the round that is being computed was taken away."""


class ExecutorChild:
    """Answers the agent's frames, one at a time.

    Parameters
    ----------
    channel, device
        Its end of the pair, and where it computes.
    """

    def __init__(self, channel: FrameSocket, device: Device) -> None:
        self.channel = channel
        self.device = device
        self.gate = FenceGate()
        self.models = Residency()
        #: They outlive models, which can be made again of what is sent.
        self.data_sets = DataSets()
        self._pulse = Pulse(channel.send)
        #: Nothing of a lease up to this one is computed any more.
        self._revoked: Fence | None = None
        self.jobs = Jobs(device, self._pulse, self._look)
        self.minibatches = Minibatches(
            self._ready, self._still, self._pulse.beat, lambda timeout_s: self.channel.wait(timeout_s), channel.send
        )
        self.shares = Shares(self._restored, self._ready, self._alive)
        #: Tasks whose shared minibatches ran out of memory here: from then on no other model is beside them.
        self._tight: set[str] = set()
        #: Why this process must end once it has answered; empty: it need not.
        self._broken = ""
        #: Frames that came while a user's function ran.
        self._later: deque[tuple[Plain, memoryview]] = deque()
        #: What computes under a lease.
        self._frames = {
            "job": self.jobs.run,
            "initialise": self._initialise,
            "stage": self._stage,
            "keep": self._keep,
            "restore": self._restore,
            "finish": self._finish,
            "join": self.minibatches.join,
            "share": self._share,
            "apply": self.shares.apply,
        }

    def receive(self) -> tuple[Plain, memoryview]:
        """Wait for the next frame.

        Raises
        ------
        EOFError
            If the agent is gone.
        SystemExit
            If a function has broken the device for this process; its error has been sent.
        """
        if self._broken:
            raise SystemExit(self._broken)
        return self._later.popleft() if self._later else self.channel.receive()

    def _look(self) -> None:
        """Read what has come while a function runs: its holder may be asked to give way, the rest waits for its end."""
        with contextlib.suppress(EOFError):  # then the life line ends this process
            while self.channel.waiting:
                header, payload = self.channel.receive()
                if header["op"] in {"asked", "revoked", "cut", "parts", "apart"}:
                    self._at_any_time(header)
                else:
                    self._later.append((header, payload))

    def answer(self, header: Plain, payload: memoryview) -> Reply:
        """Carry out one frame and return the answer's header and payloads."""
        if header["op"] not in self._frames:
            return self._at_any_time(header), []
        refusal = self.gate.admit(header["fence"])
        if refusal:
            return {"op": "refused", "reason": refusal}, []
        self.jobs.only(header["fence"])
        try:
            reply = self._with_room(header, payload)
        except NonFinite as error:
            return {"op": "error", "kind": "NonFinite", "message": str(error), "detail": ""}, []
        except _RevokedError:
            return {"op": "refused", "reason": "the lease was taken away while the round was computed"}, []
        except MemberGone as error:
            return {"op": "refused", "reason": str(error)}, []
        except Exception:
            # Without an answer the round is computed anew, by a process whose device works.
            if reason := self._ended():
                raise SystemExit(reason) from None
            raise
        if not reply[0].get("ok", True):
            self._broken = self._ended()
        return reply

    def _ended(self) -> str:
        """Return why the device is of no use to this process any more, empty if it is."""
        return (broken := self.device.broken) and f"the device must be opened anew: {broken}"

    def _with_room(self, header: Plain, payload: memoryview) -> Reply:
        """Carry out a frame; where memory runs out, once more with no other task's model and an empty cache.

        What failed has changed nothing: gradients are staged, and updates made, whole or not at all.

        Raises
        ------
        torch.OutOfMemoryError
            If there was not enough then, either.
        """
        carry_out, task, is_shared = self._frames[header["op"]], header.get("task", ""), bool(header.get("gang"))
        if is_shared and task in self._tight:
            self._drop_others(task)
        try:
            return carry_out(header, payload)
        except torch.OutOfMemoryError as error:
            lacking = short(error)
        self._drop_others(task)  # outside of the handler, whose traceback holds tensors
        if is_shared and task in self._tight:
            raise lacking
        if is_shared:  # the other members wait for a part that comes no more: all begin anew
            self._tight.add(task)
            return {"op": "refused", "reason": "memory ran out in minibatches that several slots share"}, []
        try:
            return carry_out(header, payload)
        except torch.OutOfMemoryError as error:
            raise short(error) from None

    def _drop_others(self, task: str) -> None:
        """Drop all other tasks' models, and what the device keeps for later."""
        for other in [other for other in self.models if other != task]:
            self.models.drop(other)
        self.jobs.evicted()
        self.device.free()

    def _at_any_time(self, header: Plain) -> Plain:
        """Answer what needs no lease: it changes no parameters."""
        match header["op"]:
            case "job-end":
                return self.jobs.end(header["fence"])
            case "job-leave":
                return self.jobs.leave()
            case "memory":
                return {"op": "memory", **self.device.memory()}
            case "own":
                become(f"drlnb executor {header['slot']} {header['task']}")
            case "asked":
                self.jobs.asked(header["fence"])
            case "revoked":
                self._revoked = max(header["fence"], self._revoked or header["fence"])
            case "cut":
                self.shares.cut(header)
            case "parts" | "apart":
                self.minibatches.told(header)
            case "evict":
                self._forget(header["task"])
        return {"op": "noted"}

    def _model(self, task: str, header: Plain) -> Model:
        spec, device = read_work(header["spec"]), self.device.name
        if isinstance(spec, FitWork):
            return Model(FitLearner(spec, device=device, data_sets=self.data_sets, task=task))
        assert isinstance(spec, RlWork)
        return Model(make_learner(spec, device=device))

    def _forget(self, task: str) -> None:
        """Drop what is kept of a task that has ended."""
        self._tight.discard(task)
        self.data_sets.drop(task)
        if self.models.drop(task):
            self.jobs.evicted()

    def _make_room(self, task: str) -> None:
        """Drop models of other tasks than this one, if all together take too much."""
        if self.models.shrink(self.device.models_bytes, task):
            self.jobs.evicted()
            self.device.free()

    def _initialise(self, header: Plain, _payload: memoryview) -> Reply:
        started = time.perf_counter()
        task = header["task"]
        model, order = self._model(task, header), header.get("swap")
        if (
            order
            and model.module is not None
            and (problem := budget_problem(model.module, order["memory_budget_bytes"]))
        ):
            return {"op": "error", "kind": "ConfigError", "message": problem, "detail": ""}, []
        model.got("", 1)
        self.models.put(task, model)
        return self._made(model, {}, started, header)

    def _restored(self, header: Plain, payload: memoryview) -> Model | None:
        """Return the task's model, at the frame's version if its state came along; None if it is not here."""
        task = header["task"]
        model = self.models.use(task)
        with state_of(header, payload) as state:
            if state is not None:
                model = model or self._model(task, header)
                self.models.put(task, model)
                bare = header.get("bare", False)
                model.sized(len(state), bare=bare)
                self._make_room(task)
                model.learner.restore(header["state"], state)
                model.restored(header["version"], bare=bare)
        return model

    def _ready(self, header: Plain, payload: memoryview) -> Model | None:
        """Return the task's model with its round open under this fence; None if its state is not here."""
        version, staging, made = header["version"], (header["fence"], header["round"]), header.get("parameters")
        model = self._restored(header, payload)
        if made and model is not None and model.staging is not None and model.holds == made:
            model.staging = staging  # it made them under a lease that was lost, and goes on with the round
        if model is None or not (model.is_at(version) or (model.version == version and model.staging == staging)):
            return None
        if model.staging != staging:
            for name, value in header["settings"].items():
                model.learner.set(name, value)
            model.learner.begin(header["round"], header["after_timesteps"])
            model.staging, model.staged = staging, {}
        return model

    def _stage(self, header: Plain, payload: memoryview) -> Reply:
        model = self._ready(header, payload)
        if model is None:
            return {"op": "need-state"}, []
        if not model.follow(header):
            return {"op": "need-plan"}, []
        started, collector = time.perf_counter(), header["collector"]
        fragment = Fragment.unpack(header["fragment"], payload[header["n_state"] :])
        padding = Padding.of(header, lambda: self._alive(header["fence"]))
        model.learner.stage(collector, fragment)
        padding.rest()
        model.staged[collector] = tuple(fragment.header.get("env_indices", ()))
        answer = _done("staged", started, moved_bytes=moved_bytes(header)) | {"swaps": plain(model.swaps())}
        if not header.get("keep") or isinstance(model.learner, FitLearner):
            return answer, []
        return answer, [_part(model, header)]

    def _keep(self, header: Plain, _payload: memoryview) -> Reply:
        """Answer with the gradient of a batch that was computed here under this lease."""
        model, staging = self.models.use(header["task"]), (header["fence"], header["round"])
        if model is None or model.staging != staging or header["collector"] not in model.staged:
            return {"op": "refused", "reason": "what is to be kept is not staged under this fence"}, []
        return {"op": "kept"}, [_part(model, header)]

    def _restore(self, header: Plain, payload: memoryview) -> Reply:
        """Restore gradients of this round that were computed elsewhere, or here under former leases."""
        started = time.perf_counter()
        model = self._ready(header, payload)
        if model is None:
            return {"op": "need-state"}, []
        keys, sizes = header["keys"], header["sizes"]
        for key, part in zip(keys, split(payload[header["n_state"] :], sizes), strict=False):
            model.parts[key] = bytes(part)
        if any(key not in model.parts for key in keys):
            return {"op": "need-parts"}, []
        staging, model.staging = model.staging, None  # half of them is nothing
        for key in keys:
            assert not isinstance(model.learner, FitLearner)
            model.learner.import_partial(Fragment.from_bytes(model.parts[key]))
        model.staging = staging
        model.staged.update(dict.fromkeys(header["collectors"], ()))
        return _done("restored", started, moved_bytes=sum(sizes) + moved_bytes(header)), []

    def _finish(self, header: Plain, _payload: memoryview) -> Reply:
        started, (fence, round_, collectors) = time.perf_counter(), itemgetter("fence", "round", "collectors")(header)
        model = self.models.use(header["task"])
        if model is None or model.staging != (fence, round_):
            return {"op": "refused", "reason": "nothing is staged under this fence"}, []
        has_data, staged = isinstance(model.learner, FitLearner), model.staged.keys()
        if not has_data and staged != {*collectors}:  # dropped for want of memory, between two of them
            of = f"of collectors {sorted(staged)}, not {sorted(collectors)}"
            return {"op": "refused", "reason": f"what is staged under this fence is {of}"}, []
        if not model.follow(header):
            return {"op": "need-plan"}, []

        try:
            with self.minibatches.shared(model, header) as compute_s:
                metrics = model.learner.finish(Padding.of(header, lambda: self._alive(fence)).between)
        except (_RevokedError, MemberGone):  # the learner has undone the update
            model.staging = None
            raise
        model.got(model.holds if model.ahead else "", model.version + 1)
        model.staging = None
        model.parts.clear()
        return self._made(model, metrics, started, header, compute_s())

    def _share(self, header: Plain, payload: memoryview) -> Reply:
        reply = self.shares.compute(header, payload)
        self.device.computed()
        return reply

    def _alive(self, fence: Fence) -> None:
        """Show that this process is at work; raise if the lease that it works under is over."""
        self._still(fence)
        self._pulse.beat()

    def _still(self, fence: Fence) -> None:
        """Read what has come while this process works; raise if the lease that it works under is over."""
        self._look()
        if self._revoked is not None and fence <= self._revoked:
            raise _RevokedError

    def _made(self, model: Model, metrics: Plain, started: float, header: Plain, compute_s: float = 0.0) -> Reply:
        published = model.learner.published()
        meta, state = model.learner.state()
        model.sized(state.nbytes)
        self.device.computed()
        self._make_room(header["task"])
        n_shared = put_into(header.get("into"), published, state)
        event = {"n_bytes": int(published.nbytes), "metrics": plain(metrics), "compute_s": compute_s}
        answer = _done("made", started, **event)
        answer |= {
            "n_shared": n_shared,
            "swaps": plain(model.swaps()),
            "state": plain(meta) | _module_layout(model.learner.layout),
        }
        return answer, [] if n_shared else [published, state]


def _part(model: Model, header: Plain) -> bytes:
    """Return a batch's gradient as it is kept, here and at the master."""
    assert not isinstance(model.learner, FitLearner)
    part = model.learner.export_partial(model.staged[header["collector"]]).to_bytes()
    model.parts[f"{header['round']}/{header['collector']}/{header['fence'].token}"] = part
    return part


def _done(op: str, started: float, **event: object) -> Plain:
    """Return an answer with the fields that the executor knows of the event that the master makes of it."""
    return {"op": op, "event": {"elapsed_s": time.perf_counter() - started, **event}}


def _module_layout(layout: Layout | None) -> Plain:
    """Return a torch module's layout as a fact of its learner: the master, which has no torch, cannot derive it."""
    return {LAYOUT: describe_layout(layout)} if layout is not None and layout.activation == "module" else {}


def main() -> None:
    """Run as ``executor --fd N SLOT cpu|cuda MEMORY_BYTES N_SHARING``."""
    fd, slot, device, memory_bytes, n_sharing = sys.argv[2:]
    become(f"drlnb executor {slot}")
    torch.set_num_threads(1)
    channel = FrameSocket(socket.socket(fileno=int(fd)))
    total_bytes = torch.cuda.mem_get_info()[1] if device == "cuda" else int(memory_bytes)
    child = ExecutorChild(channel, Device(device, total_bytes, int(n_sharing)))
    child.jobs.begin()
    name = torch.cuda.get_device_name(0) if device == "cuda" else "cpu"
    channel.send({"op": "up", "pid": os.getpid(), "slot": slot, "device_name": name})
    channel.serve(child.answer, child.receive)


if __name__ == "__main__":
    main()
