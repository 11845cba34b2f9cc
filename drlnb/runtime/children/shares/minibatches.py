"""Compute each minibatch of a round together with the other slots of a lease: a part here, and then everybody's sum.

Each member writes its part where the others of its host find it, and its agent tells the agents of other hosts.  Once
all parts of a minibatch are there, each member sums them in the members' order: they all make the same step.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from drlnb.records.ids import Fence
from drlnb.rl.fragments import Fragment
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.children.model_cache import Model
from drlnb.runtime.ipc.frames import Reply, plain, split
from drlnb.runtime.ipc.shared_memory import Segment, attached, moved_bytes
from drlnb.runtime.protocol import Plain

__all__ = ["MemberGone", "Minibatches", "bounds"]

#: Longest wait for the other members between two signs of life, in seconds; and for how long there are any: one whose
#: process stands still is ended by its own node first, and nobody waits for ever.
_WAIT_S, _PATIENCE_S = 0.5, 30.0


class MemberGone(Exception):
    """What another member has brought is gone: its process has ended."""


def bounds(sizes: list[int], n_samples: int) -> list[tuple[int, int]]:
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

    def __init__(self, header: Plain, send: Callable[[Plain], None], met: Callable[[int], Plain]) -> None:
        self._send, self._met = send, met
        self._names = [name for name, _ in header["gang"]]
        self._sizes, self._number = header["sizes"], self._names.index(header["slot"])
        self._about = {name: header[name] for name in ("task", "fence", "round", "slot", "gang")}
        self._mapped = contextlib.ExitStack()
        self._views: dict[str, np.ndarray] = {}
        self._segment: Segment | None = None
        self._n_met = 0
        self._since_t = time.perf_counter()
        #: Seconds that were not spent on bringing parts, and waiting for others'.
        self.compute_s = 0.0

    def own(self, n_samples: int) -> tuple[int, int]:
        """Return which samples of a minibatch this member computes."""
        return bounds(self._sizes, n_samples)[self._number]

    def add_up(self, gradient: Tensor, statistics: Tensor) -> None:
        """Replace this member's parts of two sums by the sums."""
        part = torch.cat([gradient, statistics]).cpu().numpy()
        self.compute_s += time.perf_counter() - self._since_t
        n_bytes = part.nbytes
        # Two halves in turn: when a part is written, all have read the one before the last.
        if self._segment is None:
            self._segment = Segment(2 * n_bytes, "minibatch")
        start = self._n_met % 2 * n_bytes
        self._segment.look()[start : start + n_bytes] = part.view(np.uint8)
        places = self._meet([self._segment.path, start, n_bytes])
        total = np.zeros_like(part)
        for name in self._names:
            total += part if name == self._about["slot"] else self._at(*places[name]).view(part.dtype)
        summed = torch.from_numpy(total).to(gradient.device)
        gradient.copy_(summed[: len(gradient)])
        statistics.copy_(summed[len(gradient) :])
        self._since_t = time.perf_counter()

    def _meet(self, place: list[object]) -> Plain:
        """Wait until all have brought their parts; return where they are."""
        self._n_met += 1
        self._send({**self._about, "op": "part", "number": self._n_met, "place": place})
        return self._met(self._n_met)

    def part_ways(self) -> None:
        """Wait until all have read what was brought last: then it may go."""
        if self._segment is not None:
            self._meet([self._segment.path, 0, 0])

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
        send: Callable[[Plain], None],
    ) -> None:
        self._ready, self._still, self._beat, self._wait, self._send = ready, still, beat, wait, send
        #: (fence, round, number of a minibatch) -> where the parts of all members are.
        self._places: dict[tuple[Fence, int, int], Plain] = {}
        #: A lease whose members do not reach each other, and why.
        self._apart: tuple[Fence, str] | None = None

    def told(self, header: Plain) -> None:
        """Note where the parts of a minibatch are."""
        self._places[header["fence"], header["round"], header["number"]] = header["places"]

    def told_apart(self, header: Plain) -> None:
        """Note that the members of a lease do not reach each other."""
        self._apart = header["fence"], header["reason"]

    def _met(self, fence: Fence, round_: int, number: int) -> Plain:
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
        """Share the minibatches of a model's round, if the frame names members; yield what tells seconds of computing.

        Raises
        ------
        OSError
            In the body, if there is no memory for a part.
        """
        if not header.get("gang") or isinstance(model.learner, FitLearner):
            yield lambda: 0.0
            return
        gang = _Gang(header, self._send, lambda number: self._met(header["fence"], header["round"], number))
        model.learner.shared = gang
        try:
            yield lambda: gang.compute_s
            gang.part_ways()
        finally:
            model.learner.shared = None
            gang.close()
            self._places.clear()

    def join(self, header: Plain, payload: memoryview) -> Reply:
        """Make a round's steps beside the slot whose parameters count."""
        started, model = time.perf_counter(), self._ready(header, payload)
        if model is None:
            return {"op": "need-state"}, []
        if not model.follow(header):
            return {"op": "need-plan"}, []
        n_bytes = [fragment["n_bytes"] for fragment in header["fragments"]]
        parts = split(payload[header["n_state"] :], n_bytes)
        for collector, fragment, part in zip(header["collectors"], header["fragments"], parts, strict=True):
            model.learner.stage(collector, Fragment.unpack(fragment["header"], part))
        # Its steps are those of the lead where both compute on the same kind of device, which nobody has proved.
        model.got("")
        model.staging = None
        with self.shared(model, header) as compute_s:
            model.learner.finish(lambda _done, _total: self._alive(header["fence"]))
            event = {"compute_s": compute_s(), "elapsed_s": time.perf_counter() - started}
        event["moved_bytes"] = moved_bytes(header)
        return {"op": "joined", "event": event, "swaps": plain(model.swaps())}, []
