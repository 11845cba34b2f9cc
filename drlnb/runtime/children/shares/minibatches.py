"""Compute each minibatch of a round together with the other slots of a lease: a part here, and then everybody's sum.

Each member writes its part where the others of its host find it, and its agent tells the agents of other hosts.  Once
all parts of a minibatch are there, each member sums them in the members' order: they all make the same step.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from drlnb.records.columns.batching import JoinRound
from drlnb.records.ids import Fence
from drlnb.records.round import FinishRound
from drlnb.rl.fragments import Fragment
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.children.model_cache import Model
from drlnb.runtime.children.padding import Padding
from drlnb.runtime.children.shares.frames import read
from drlnb.runtime.ipc.frames import Reply, plain, split
from drlnb.runtime.ipc.parts import Part, Place
from drlnb.runtime.ipc.shared_memory import Segment, attached, moved_bytes
from drlnb.runtime.protocol import Plain

__all__ = ["MemberGone", "Minibatches", "bounds"]

#: Longest wait for the other members between two signs of life, in seconds; and for how long there are any: one whose
#: process stands still is ended by its own node first, and nobody waits for ever.
_WAIT_S, _PATIENCE_S = 0.5, 30.0


class MemberGone(Exception):
    """What another member has brought is gone, or it cannot be reached."""


def bounds(sizes: Sequence[int], n_samples: int) -> list[tuple[int, int]]:
    """Return which samples of a minibatch each member computes: parts as their sizes are to each other.

    Examples
    --------
    >>> bounds([3, 1], 10)
    [(0, 8), (8, 10)]
    """
    ends = [0, *(round(end * n_samples / sum(sizes)) for end in accumulate(sizes))]
    return list(pairwise(ends))


class _Gang:
    """One member of those that make a round's steps together; see :class:`drlnb.rl.algorithms.learner.Shared`."""

    def __init__(
        self,
        command: JoinRound | FinishRound,
        gang: list[tuple[str, str]],
        send: Callable[[Mapping[str, object]], None],
        met: Callable[[int], Sequence[Place]],
        look: Callable[[], None],
    ) -> None:
        self._send, self._met, self._gang = send, met, gang
        self._command, self._number = command, command.members.index(command.slot)
        self._mapped = contextlib.ExitStack()
        self._views: dict[str, np.ndarray] = {}
        self._segment: Segment | None = None
        self._n_met = 0
        self._padding = Padding(command.slowed, look)
        #: Seconds that were not spent on bringing parts, and waiting for others'.
        self.compute_s = 0.0

    def own(self, n_samples: int) -> tuple[int, int]:
        """Return which samples of a minibatch this member computes."""
        return bounds(self._command.sizes, n_samples)[self._number]

    def add_up(self, gradient: Tensor, statistics: Tensor) -> None:
        """Replace this member's parts of two sums by the sums."""
        part = torch.cat([gradient, statistics]).cpu().numpy()
        self.compute_s += self._padding.rest()
        n_bytes = part.nbytes
        # Two halves in turn: when a part is written, all have read the one before the last.
        if self._segment is None:
            self._segment = Segment(2 * n_bytes, "minibatch")
        start = self._n_met % 2 * n_bytes
        self._segment.look()[start : start + n_bytes] = part.view(np.uint8)
        total = np.zeros_like(part)
        for number, place in enumerate(self._meet((self._segment.path, start, n_bytes))):
            total += part if number == self._number else self._at(*place).view(part.dtype)
        summed = torch.from_numpy(total).to(gradient.device)
        gradient.copy_(summed[: len(gradient)])
        statistics.copy_(summed[len(gradient) :])
        self._padding.begin()

    def _meet(self, place: Place) -> Sequence[Place]:
        """Wait until all have brought their parts; return where they are, in the members' order."""
        self._n_met += 1
        part = Part(self._command.fence, self._command.round, self._n_met, self._command.slot, self._gang, place)
        self._send({"op": "part", **part._asdict()})
        return self._met(self._n_met)

    def part_ways(self) -> None:
        """Wait until all have read what was brought last: then it may go."""
        if self._segment is not None:
            self._meet((self._segment.path, 0, 0))

    def _at(self, path: str, start: int, n_bytes: int) -> np.ndarray:
        """Return bytes of another member's segment; it stays mapped."""
        if path not in self._views or len(self._views[path]) < start + n_bytes:
            try:
                self._views[path] = self._mapped.enter_context(attached(path, start + n_bytes))
            except OSError as error:
                raise MemberGone(f"another member of the lease has ended: {error}") from None
        return self._views[path][start : start + n_bytes]

    def close(self) -> None:
        """Give the memory back."""
        self._views.clear()
        self._mapped.close()
        if self._segment is not None:
            self._segment.close()


class Minibatches:
    """Makes rounds together with other slots, with the models of one executor.

    Parameters
    ----------
    ready
        Returns a frame's model with its round open; None if its state is not here.
    still
        Called with a fence: reads what has come, and raises if the lease is over.
    beat
        Shows that the executor is at work.
    wait
        Waits until something has come, at most so many seconds.
    send
        Sends the agent a frame.
    """

    def __init__(
        self,
        ready: Callable[[Plain, memoryview], Model | None],
        still: Callable[[Fence], None],
        beat: Callable[[], None],
        wait: Callable[[float], object],
        send: Callable[[Mapping[str, object]], None],
    ) -> None:
        self._ready, self._still, self._beat, self._wait, self._send = ready, still, beat, wait, send
        #: (fence, round, number of a minibatch) -> where the parts of all members are.
        self._places: dict[tuple[Fence, int, int], Sequence[Place]] = {}
        #: A lease whose members do not reach each other, and why.
        self._apart: tuple[Fence, str] | None = None

    def told(self, header: Plain) -> None:
        """Note where the parts of a minibatch are, or that the members of a lease do not reach each other."""
        if header["op"] == "apart":
            self._apart = itemgetter("fence", "reason")(header)
        else:
            self._places[itemgetter("fence", "round", "number")(header)] = header["places"]

    def _met(self, fence: Fence, round_: int, number: int) -> Sequence[Place]:
        """Wait until all have brought their parts of a minibatch; return where they are.

        Raises
        ------
        MemberGone
            If they cannot reach each other.
        """
        patient_t = time.perf_counter() + _PATIENCE_S
        while (places := self._places.pop((fence, round_, number), None)) is None:
            if self._apart is not None and self._apart[0] == fence:
                raise MemberGone(f"the members of the lease cannot reach each other: {self._apart[1]}")
            self._wait(_WAIT_S)
            self._still(fence)
            if time.perf_counter() < patient_t:
                self._beat()
        return places

    def _alive(self, fence: Fence) -> None:
        self._still(fence)
        self._beat()

    @contextlib.contextmanager
    def shared(self, model: Model, header: Plain) -> Iterator[Callable[[], float]]:
        """Share the minibatches of a round, if the frame names a gang; yield what tells the seconds of computing.

        Raises
        ------
        OSError
            In the body, if there is no memory for a part.
        """
        gang = header.get("gang")
        if not gang or isinstance(model.learner, FitLearner):
            yield lambda: 0.0
            return
        is_lead = header["op"] == "finish"
        command: JoinRound | FinishRound = read(FinishRound, header) if is_lead else read(JoinRound, header)
        fence, round_ = command.fence, command.round
        met, look = partial(self._met, fence, round_), partial(self._alive, fence)
        member = _Gang(command, gang, self._send, met, look)
        model.learner.shared = member
        try:
            yield lambda: member.compute_s
            member.part_ways()
        finally:
            model.learner.shared = None
            member.close()
            self._places.clear()

    def join(self, header: Plain, payload: memoryview) -> Reply:
        """Make a round's steps beside the slot whose parameters count."""
        started, model = time.perf_counter(), self._ready(header, payload)
        if model is None:
            return {"op": "need-state"}, []
        if not model.follow(header):
            return {"op": "need-plan"}, []
        command, (batches, n_state) = read(JoinRound, header), itemgetter("batches", "n_state")(header)
        parts = split(payload[n_state:], [n_bytes for _, n_bytes in batches])
        for collector, (about, _), part in zip(command.collectors, batches, parts, strict=True):
            model.learner.stage(collector, Fragment.unpack(about, part))
        # Its steps are those of the lead where both compute on the same kind of device, which nobody has proved.
        model.got("")
        model.staging = None
        with self.shared(model, header) as compute_s:
            model.learner.finish(lambda _done, _total: self._alive(command.fence))
        event = {
            "compute_s": compute_s(),
            "elapsed_s": time.perf_counter() - started,
            "moved_bytes": moved_bytes(header),
        }
        return {"op": "joined", "event": event, "swaps": plain(model.swaps())}, []
