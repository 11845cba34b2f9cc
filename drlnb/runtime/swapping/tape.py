"""Keep what autograd saves, one entry per storage, and give it back bit by bit equal.

The hooks of saved tensors see every tensor that autograd keeps for the backward pass.  Autograd then holds a
:class:`Handle`; the handles of one storage share a :class:`Saved`, which goes where the plan says as soon as nobody
else has the storage.  Everything lives and dies with the handles: a graph that is never run, kept for a second run or
left by an exception needs no cleaning up.
"""

import time
import weakref
from collections import deque
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from drlnb.planning.swapping.profile import KEEP, SWAP, Action, RowKey
from drlnb.runtime.swapping.attribution import Attribution
from drlnb.runtime.swapping.looks import Looks
from drlnb.runtime.swapping.saved import Guard, Handle, Kept, Saved, given_back, kept, storage_of
from drlnb.runtime.swapping.tiers.base import Held, Meter, Tier
from drlnb.runtime.swapping.torch_private import StorageRef, graph_task, in_compiler, packed_by, storage_number

__all__ = ["Tape", "Watch"]

#: Storages that the next operation may make: their room is free before it runs; in a first step, like the last.
_COMING = 2
#: So many storages that somebody else still has are looked at whenever one is packed; all of them where room is short.
_LOOKED_AT = 16
_HELD, _FOREIGN = "something else holds it", "its memory is not torch's own"
#: Storages that are there whatever a step does.
_NOT_OURS = frozenset({_HELD, _FOREIGN})


class Watch(Protocol):
    """Sees what a tape does; for profiles."""

    def packed(self, handle: Handle, tensor: torch.Tensor) -> None:
        """Record a saved tensor."""

    def parting(self, saved: Saved) -> None:
        """Look at a storage that nobody else has any more, before it goes."""

    def unpacked(self, saved: Saved) -> None:
        """Record that a storage is needed, once it is there."""


class Tape:
    """The two hooks, and what they know of one step.

    Parameters
    ----------
    meter
        Counts the bytes of saved storages that are on the device.
    tier
        Where storages go.
    attribution
        Names them.
    action
        What the plan does with one.
    min_bytes
        Smaller storages stay.
    window_bytes
        So many bytes may come back before they are needed.
    """

    #: Transforms that refuse hooks run without these.
    gives_way = True

    def __init__(
        self, meter: Meter, tier: Tier, attribution: Attribution, *,
        action: Callable[[RowKey], Action], min_bytes: int, window_bytes: int,
    ) -> None:  # fmt: skip
        self.meter, self.tier, self._attribution, self._action = meter, tier, attribution, action
        self._min_bytes, self._window_bytes = max(min_bytes, 1), window_bytes  # an empty one has nothing to move
        #: A storage that is needed again within that many times its copy stays, from the next step on.
        self.gap_copies = 0.0
        self.watch: Watch | None = None
        #: Given each tensor that autograd saves.
        self.heard: Callable[[torch.Tensor], None] | None = None
        #: Makes something smaller of a storage that nobody else has, by the plan; returns whether that is settled.
        self.ways: dict[Action, Callable[[Saved], bool]] = {}
        #: Storages that something else holds: no plan moves them.
        self.others: dict[RowKey, str] = {}
        #: Storages that are needed again at once: while there is no plan, they stay.
        self.near: dict[RowKey, str] = {}
        self._uncounted = Meter()
        self._pinned: Collection[int] = ()
        self._stream: object = None  # on which the step began: copies wait for it alone
        self._small: dict[int, object] = {}
        self._saved: weakref.WeakValueDictionary[int, Saved] = weakref.WeakValueDictionary()
        self.looks = Looks(self._saved)
        self._is_parting = False
        self._leaving: deque[weakref.ref[Saved]] = deque()  # what somebody else still has
        #: Those of this step, by key.
        self.rows: weakref.WeakValueDictionary[RowKey, Saved] = weakref.WeakValueDictionary()
        #: Storages that are counted, in a step that keeps all; which of them are not ours; keys of the last other step.
        self._counted: dict[int, weakref.ref[Held]] = {}
        self._not_ours: Collection[int] = ()
        self._names: list[RowKey] = []
        self._sizes: list[int] = []  # of the storages that the last step packed: the next one needs room, too
        self._packed: list[int] = []
        self._order: list[RowKey] = []  # of the last step: in which storages were needed
        self._needed: dict[RowKey, None] = {}  # of this step
        self._ahead: dict[RowKey, int] = {}  # bytes asked for and not yet needed
        self._task, self._cursor = -1, 0
        self.n_saved = self.n_packs = self.swapped_bytes = self.n_fetched = 0
        self._waited_s = 0.0

    def begin(self, pinned: Collection[int], *, counts: bool = False) -> None:
        """Begin a step.

        Parameters
        ----------
        pinned
            Numbers of storages that are there whatever happens (of parameters, buffers): they, and views of them, stay.
        counts
            All will stay: tensors go to :meth:`count` instead of :meth:`pack`.
        """
        self._not_ours = {i for i, key in enumerate(self._names) if counts and self.others.get(key) in _NOT_OURS}
        self._names = self._names if counts else []
        self._pinned, self._stream = pinned, self.meter.stream()
        self._counted = {where: known for where, known in self._counted.items() if known() is not None}
        self.rows.clear()
        self._small.clear()
        self._leaving.clear()
        self.looks.clear()
        self._needed, self._task, self._cursor = {}, -1, 0
        self._sizes, self._packed = self._packed, []
        self.n_saved = self.n_packs = self.swapped_bytes = self.n_fetched = 0
        self._waited_s = self.meter.waited_s

    @property
    def stall_s(self) -> float:
        """How long this step has waited."""
        return self.meter.waited_s - self._waited_s

    def end(self) -> None:
        """End a step: what was brought back for nothing goes, and nothing is under way any more."""
        while self.tier.relieve():
            pass
        for key in self._ahead:
            saved = self.rows.get(key)
            if saved is not None and saved.ticket is not None:
                saved.ticket.forget()
        self._ahead.clear()
        self._order = list(self._needed) or self._order
        if not self._is_aside():
            self.looks.part()  # nothing parts any more before the next step: autocast's casts have gone by now

    def own_time(self) -> AbstractContextManager[None]:
        """Return what leaves out of a recorded step's time what we do in it."""
        return nullcontext() if self.watch is None else self.meter.untimed()

    def pack(self, tensor: torch.Tensor) -> Handle | Kept:
        """Adopt a tensor that autograd saves."""
        with self.own_time():
            return self._packed_as(tensor)

    def _packed_as(self, tensor: torch.Tensor) -> Handle | Kept:
        if self.heard is not None:
            self.heard(tensor)
        storage = self._ours(tensor)
        if storage is None:
            return kept(tensor)
        self.part()
        saved = self._saved.get(storage_number(storage)) or self._first(storage)
        self.n_packs += 1
        handle = Handle(saved, Guard(tensor))
        if self.watch is not None:
            self.watch.packed(handle, tensor)
        elif saved.action in self.ways:
            self._attribution.call.pending.append(handle)
        return handle

    def count(self, tensor: torch.Tensor) -> Kept:
        """Keep a tensor that autograd saves, and count its storage: where all stays, nothing needs a name."""
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or self._is_elsewhere(tensor):
            return kept(tensor)
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # a transform has wrapped it
            return kept(tensor)
        where, n_bytes = storage_number(storage), storage.nbytes()
        if n_bytes < self._min_bytes or where in self._pinned:
            return kept(tensor)
        held = known() if (known := self._counted.get(where)) else None
        if held is None:
            if storage_of(tensor) is None:
                return kept(tensor)
            held = Held(self._uncounted if self.n_saved in self._not_ours else self.meter, storage)
            self._counted[where] = weakref.ref(held)
            self.n_saved += 1
            self._packed.append(n_bytes)
        self.n_packs += 1
        return kept(tensor, held)

    def _ours(self, tensor: torch.Tensor) -> torch.UntypedStorage | None:
        storage = storage_of(tensor)
        if storage is None or in_compiler() or self._is_elsewhere(tensor) or self._is_aside():
            return None
        number = storage_number(storage)
        if number in self._pinned:
            return None
        if storage.nbytes() < self._min_bytes:  # it has its number: those of larger ones are the same at any batch size
            if number not in self._small:
                self._small[number] = StorageRef(storage)
                self._attribution.name()
            return None
        return storage

    def _is_elsewhere(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is on another device than the module: its tier is not that of the module."""
        return self.meter.device is not None and tensor.device != self.meter.device

    def _is_aside(self) -> bool:
        """Return whether this thread computes on another stream than that of the step, for which copies wait."""
        return self.meter.stream() != self._stream

    def _first(self, storage: torch.UntypedStorage) -> Saved:
        key, layer_type = self._attribution.name()
        if not storage.resizable() or (storage.device.type == "cpu" and storage.is_shared()):
            self.others[key] = _FOREIGN  # others may write it, whoever has the storage
        stays = key in self.others or (key in self.near and self.gap_copies > 0)
        action = KEEP if stays else self._action(key)
        self.make_room(storage.nbytes())  # else how fast copies are would decide what is counted beside it
        held = Held(self._uncounted if self.others.get(key) in _NOT_OURS else self.meter, storage)
        saved = Saved(key, layer_type, held, action)
        self._saved[saved.number] = self.rows[key] = saved
        self._names.append(key)
        self.n_saved += 1
        self._packed.append(saved.n_bytes)
        if action == SWAP or action in self.ways or self.watch is not None:
            self._leaving.append(weakref.ref(saved))
        coming = self._sizes[self.n_saved : self.n_saved + _COMING] if self._sizes else [saved.n_bytes] * _COMING
        self.make_room(sum(coming))
        return saved

    def part(self, *, with_all: bool = False) -> None:
        """Part with storages that nobody but autograd has any more: what they hold now is what they will hold.

        Until then whoever has one may write it, and not every write is counted; plain PyTorch would read it, too.
        """
        if self._is_parting or self._is_aside():  # making room for one of them
            return
        self._is_parting, n = True, len(self._leaving)
        try:
            self.looks.part()
            for _ in range(n if with_all else min(n, _LOOKED_AT)):
                where = self._leaving.pop()  # the newest first: those of long ago are held for long
                saved = where()
                if saved is not None and not (saved.is_free and self._parted(saved)):
                    self._leaving.appendleft(where)
        finally:
            self._is_parting = False

    def _parted(self, saved: Saved) -> bool:
        if self.watch is not None:
            self.watch.parting(saved)
        self.looks.parting(saved)
        if saved.action in self.ways:
            return self.ways[saved.action](saved)
        if saved.action != SWAP or saved.held is None:
            return True
        saved.ticket = self.tier.store(saved.held)
        if saved.ticket is not None:
            saved.held, saved.parted_s = None, time.perf_counter()
            self.swapped_bytes += saved.n_bytes
        return True

    def make_room(self, n_bytes: int) -> None:
        """Wait for copies out until there is room for so many bytes more, or none is under way."""
        if self.meter.n_bytes + n_bytes > self.meter.limit_bytes:
            self.part(with_all=True)
        while self.meter.n_bytes + n_bytes > self.meter.limit_bytes and not self._is_aside() and self.tier.relieve():
            pass

    def unpack(self, handle: Handle | Kept) -> torch.Tensor:
        """Give a tensor back to autograd: any number of times, in any order, in any thread."""
        if isinstance(handle, tuple):
            return given_back(handle)
        with self.own_time():
            return self._given_back(handle)

    def _given_back(self, handle: Handle) -> torch.Tensor:
        handle.guard.check()
        self._turn()
        saved = handle.saved
        if (other := handle.guard.original.with_other_data) is not None:
            saved.unpacked(id(handle))
            return other.detach()
        form = saved.forms.get(id(handle))
        differentiated = torch.is_grad_enabled()
        with torch.no_grad():
            if form is not None:
                self.make_room(saved.n_bytes)
                tensor = form()
                self.meter.follow(tensor.untyped_storage())
            else:
                storage = self.restored(saved).storage
                if differentiated and saved.held is None:  # what came back may be saved once more: it is there already
                    self._saved[saved.returned(storage)] = saved
                tensor = handle.guard.view(storage)
            tensor = handle.guard.sharing(tensor)
        saved.unpacked(id(handle))
        return tensor

    def restored(self, saved: Saved) -> Held:
        """Return a storage's contents on the device, and ask for those that are needed after it."""
        now = time.perf_counter if self.watch is None else self.meter.settle  # copies are waited for on the device
        began_s, waited_s = now(), self.meter.waited_s
        fetched = saved.held is None and saved.buffer is None
        if fetched and (saved.ticket is None or not saved.ticket.stay()):
            self.make_room(saved.n_bytes)
        if graph_task() != -1:
            self._prefetch(saved)
        held = saved.restored()
        if fetched:
            self.meter.waited_s = waited_s + now() - began_s
        self.n_fetched += fetched
        if self.watch is not None and saved.key not in self._needed:
            self.watch.unpacked(saved)
        self._needed.setdefault(saved.key)
        return held

    def _prefetch(self, saved: Saved) -> None:
        self._ahead.pop(saved.key, None)
        if saved.ticket is not None and saved.buffer is None:
            saved.ticket.load()  # before those that come after it
        if saved.key not in self._needed:
            self._near(saved)
        if saved.key in self._order:
            self._cursor = max(self._cursor, self._order.index(saved.key) + 1)
        while self._cursor < len(self._order):
            ahead = self.rows.get(self._order[self._cursor])
            if ahead is not None and ahead.ticket is not None and ahead.buffer is None:
                window_bytes = self._window_bytes - sum(self._ahead.values())
                if ahead.n_bytes > min(window_bytes, self.meter.limit_bytes - self.meter.n_bytes):
                    return
                ahead.ticket.load()
                self._ahead[ahead.key] = ahead.n_bytes
            self._cursor += 1

    def remaking(self, own: Collection[int]) -> Callable[[torch.Tensor], None]:
        """Return what counts the tensors that a block saves when it is run again, each storage as long as it lives.

        Parameters
        ----------
        own
            Numbers of the storages of its parameters and buffers, which do not count.
        """
        there = [held for saved in self.rows.values() for held in (saved.held, saved.buffer) if held is not None]
        known = {*own, *self._pinned, *[storage_number(held.storage) for held in there]}

        def count(tensor: torch.Tensor) -> None:
            storage = storage_of(tensor)
            if storage is not None and storage.nbytes() >= self._min_bytes and storage_number(storage) not in known:
                known.add(storage_number(storage))
                self.make_room(storage.nbytes())
                self.meter.follow(storage)

        return count

    def _turn(self) -> None:
        """Look, as a backward pass begins, at what would be swapped for nothing: somebody else has the storage."""
        if graph_task() in {-1, self._task}:
            return
        self._task, self._cursor = graph_task(), 0
        if not self._order:
            self._order = list(self.rows)[::-1]
        self.part(with_all=True)
        for where in self._leaving:
            saved = where()
            if saved is not None and saved.action == SWAP and not saved.is_free:
                self.others[saved.key] = _HELD

    def _near(self, saved: Saved) -> None:
        """Keep, from the next step on, what is needed again at once."""
        if saved.ticket is not None:
            gap_s = time.perf_counter() - saved.parted_s
            if gap_s < self.gap_copies * saved.n_bytes * self.tier.out.s_per_byte:
                self.near[saved.key] = "it is needed again before a copy would be there and back"

    def saved_in(self, number: int) -> Saved | None:
        """Return the entry of a storage, if autograd keeps it."""
        return self._saved.get(number)

    def handle_of(self, node: object, name: str) -> Handle | None:
        """Return the handle of this step that a node of the graph holds under a name such as ``_saved_self``.

        Nothing is unpacked: a node that others' hooks have packed for is not ours to unpack.
        """
        packed = packed_by(node, name)
        if isinstance(packed, Handle) and self.rows.get(packed.saved.key) is packed.saved:
            return packed
        return None
