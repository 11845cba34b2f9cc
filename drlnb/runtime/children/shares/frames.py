"""Answer the frames of steps that several slots share."""

import time
from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

import numpy as np

from drlnb.records.base import Record
from drlnb.records.columns.batching import ApplyGradients, ComputeShare, CutShare
from drlnb.records.ids import Fence
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.children.model_cache import Model
from drlnb.runtime.children.padding import Padding
from drlnb.runtime.children.shares.packed import load_parameters, pack_parameters
from drlnb.runtime.children.shares.step import apply_gradients, compute_share
from drlnb.runtime.ipc.frames import Reply, plain
from drlnb.runtime.ipc.shared_memory import arrived, moved_bytes, put_into
from drlnb.runtime.protocol import Plain

__all__ = ["Shares", "read"]

_R = TypeVar("_R", bound=Record)


class Shares:
    """Answers the frames of steps that several slots share, with the models of one executor.

    Parameters
    ----------
    restored
        Returns a frame's model, with the training state that came with it; None if it is not here.
    opened
        Returns it with its round open, for the lead; None if it is not at the frame's version.
    alive
        Called with a fence between two chunks: shows that the executor is at work, and raises if the lease is over.
    """

    def __init__(
        self,
        restored: Callable[[Plain, memoryview], Model | None],
        opened: Callable[[Plain, memoryview], Model | None],
        alive: Callable[[Fence], None],
    ) -> None:
        self._restored, self._opened, self._alive = restored, opened, alive
        #: Which share ends at its next chunk.
        self._cut: tuple[Fence, int] | None = None

    def cut(self, header: Plain) -> None:
        """End a share at its next chunk; it may not have begun."""
        command = read(CutShare, header)
        self._cut = command.fence, command.split

    def compute(self, header: Plain, payload: memoryview) -> Reply:
        """Compute the gradient of a share."""
        command, model = read(ComputeShare, header), self._restored(header, payload)
        if model is None or not (command.parameters or model.has_parameters(command.version)):
            return {"op": "need-state"}, []
        learner, n_moved = model.learner, moved_bytes(header)
        assert isinstance(learner, FitLearner)
        if command.parameters and model.holds != command.parameters:
            with arrived(header, payload) as parts:
                if not parts:
                    return {"op": "need-parameters"}, []
                model.staging, n_moved = None, n_moved + len(parts[0])
                model.got("")  # a half of them is nothing
                learner.changed()
                load_parameters(learner.module, parts[0])
            model.got(command.parameters)
        arrived_t = time.perf_counter()
        if not model.follow(header):
            return {"op": "need-plan"}, []

        began_t = time.perf_counter()
        padding = Padding(command.slowed, lambda: self._alive(command.fence))

        def goes_on() -> bool:
            padding.rest()
            self._alive(command.fence)
            return self._cut != (command.fence, command.split)

        gradient = compute_share(learner, command.step, command.first, command.n, command.chunk, goes_on)
        padding.rest()
        ended_t = time.perf_counter()
        event = gradient._asdict()
        packed = event.pop("packed")
        event |= {"compute_s": ended_t - began_t, "age_s": ended_t - arrived_t, "moved_bytes": n_moved}
        return self._answer("shared", header, event, [packed], plain(model.swaps()))

    def apply(self, header: Plain, payload: memoryview) -> Reply:
        """Make a step of gradients, and give the new parameters; or those that it goes on from."""
        command, model = read(ApplyGradients, header), self._opened(header, payload)
        if model is None:
            return {"op": "need-state"}, []
        learner, goes_on = model.learner, bool(command.parameters)
        assert isinstance(learner, FitLearner)
        if goes_on and model.holds != command.parameters:
            return {"op": "behind"}, []
        if learner.n_steps != command.step + goes_on:
            return {"op": "refused", "reason": f"step {command.step} cannot follow {learner.n_steps} steps"}, []
        with arrived(header, payload) as parts:
            if len(parts) != len(command.keys):
                return {"op": "refused", "reason": f"not all gradients of step {command.step} are here"}, []
            model.got("")  # half a step is nothing
            cosines = [] if goes_on else apply_gradients(learner, command.step, parts, command.denominators)
        model.got(header.get("key", ""))
        packed = [pack_parameters(learner.module, learner.as_made)] if command.others else []
        return self._answer("applied", header, {"cosines": cosines}, packed, [])

    @staticmethod
    def _answer(op: str, header: Plain, event: Plain, packed: list[np.ndarray], swaps: list[Plain]) -> Reply:
        n_shared = put_into(header.get("into"), *packed)
        answer = {"op": op, "event": event, "n_shared": n_shared, "swaps": swaps}
        return answer, [] if n_shared else list(packed)


def read(kind: type[_R], header: Plain) -> _R:
    """Return the command that a frame's header was made of."""
    return kind(**{each.name: header[each.name] for each in fields(kind)})
