"""Keep what autograd saves, one entry per storage, and give it back bit by bit equal.

The hooks of saved tensors see every tensor that autograd keeps for the backward pass.  Autograd then holds a
:class:`Handle`; the handles of one storage, at one state of its contents, share a :class:`Saved`.  Everything lives and
dies with the handles: a graph that is never run, kept for a second run or left by an exception needs no cleaning up.
"""

import time
import weakref
from collections.abc import Callable, Collection
from typing import Protocol

import torch

from drlnb.planning.swapping.profile import DERIVE, KEEP, SQUEEZE, SWAP, Action, RowKey
from drlnb.runtime.swapping.attribution import Attribution
from drlnb.runtime.swapping.guard import Geometry, Guard, Identity, Kept, given_back, identity, is_plain, kept
from drlnb.runtime.swapping.tiers.base import Held, Meter, Ticket, Tier
from drlnb.runtime.swapping.torch_private import StorageRef, graph_task, in_compiler, storage_number

__all__ = ["Handle", "Saved", "Tape", "Watch"]

#: Storages that the next operation may make: their room is free before it runs; in a first step, like the last.
_COMING = 2
_HELD = "something else holds it"


class Saved:
    """One storage that autograd keeps, in one state of its contents."""

    __slots__ = (
        "__weakref__", "_live", "_waiting", "action", "again", "buffer", "held", "identity", "key", "layer_type",
        "n_bytes", "packed_s", "ref", "source", "ticket", "views",
    )  # fmt: skip

    def __init__(self, key: RowKey, layer_type: str, tensor: torch.Tensor, action: Action) -> None:
        storage = tensor.untyped_storage()
        self.key, self.layer_type, self.n_bytes, self.action = key, layer_type, storage.nbytes(), action
        self.identity = identity(tensor)
        #: While it lives, no other storage gets the same number.
        self.ref = StorageRef(storage)
        #: The storage: as long as it stays on the device.
        self.held: Held | None = None
        #: The same, for those that may still hold it.
        self.source: weakref.ref[Held] | None = None
        self.ticket: Ticket | None = None
        #: Computes it again.
        self.again: Callable[[], Held] | None = None
        #: What came back; stays until the last handle was unpacked.
        self.buffer: Held | None = None
        self.views: set[Geometry] = set()
        self.packed_s = time.perf_counter()
        self._live: set[int] = set()
        self._waiting: set[int] = set()

    def hold(self, meter: Meter, storage: torch.UntypedStorage) -> Held:
        """Return its storage, counted once however many hold it."""
        held = self.source() if self.source else None
        if held is None:
            held = Held(meter, storage)
            self.source = weakref.ref(held)
        return held

    def restored(self) -> Held:
        """Return its contents on the device."""
        if self.held is not None:
            return self.held
        if self.buffer is None:
            if self.again is not None:
                self.buffer = self.again()
            elif self.ticket is not None:
                self.buffer = self.ticket.wait()
            else:
                raise RuntimeError(f"swapping lost {self.key}: a defect of drlnb")
        return self.buffer

    def joined(self, handle: int) -> None:
        """Count a new handle."""
        self._live.add(handle)
        self._waiting.add(handle)

    def unpacked(self, handle: int) -> None:
        """Count a handle that was read: after the last one the buffer goes, until another pass begins."""
        self._waiting.discard(handle)
        if not self._waiting:
            self.rest()

    def rest(self) -> None:
        """Drop the buffer until another pass begins."""
        self.buffer, self._waiting = None, set(self._live)

    def left(self, handle: int) -> None:
        """Forget a handle that autograd dropped."""
        self._live.discard(handle)
        self.unpacked(handle)


class Handle:
    """What autograd holds for one saved tensor."""

    __slots__ = ("__weakref__", "full", "guard", "saved", "squeezed")

    def __init__(self, saved: Saved, guard: Guard) -> None:
        self.saved, self.guard = saved, guard
        #: The storage, until it is settled that something smaller will do for this handle.
        self.full: Held | None = None
        #: Makes the tensor from that.
        self.squeezed: Callable[[], torch.Tensor] | None = None
        saved.views.add(guard.geometry)
        saved.joined(id(self))

    def __del__(self) -> None:
        self.saved.left(id(self))


class Watch(Protocol):
    """Sees what a tape does; for profiles."""

    def packed(self, handle: Handle, tensor: torch.Tensor) -> None:
        """Record a saved tensor."""

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
        #: Storages that something else holds, or of which less than half is saved: no plan moves them.
        self.others: dict[RowKey, str] = {}
        #: Storages that are needed again at once: while there is no plan, they stay.
        self.near: dict[RowKey, str] = {}
        self._uncounted = Meter()
        #: Handles that were read by :meth:`handle_of`.
        self._probed: list[object] | None = None
        self._pinned: Collection[int] = ()
        self._small: dict[Identity, object] = {}
        self._saved: weakref.WeakValueDictionary[Identity, Saved] = weakref.WeakValueDictionary()
        #: Those of this step, by key.
        self.rows: weakref.WeakValueDictionary[RowKey, Saved] = weakref.WeakValueDictionary()
        #: Storages that are counted, in a step that keeps all; which of them are not ours; keys of the last other step.
        self._counted: dict[Identity, weakref.ref[Held]] = {}
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
        self._not_ours = {i for i, key in enumerate(self._names) if counts and self.others.get(key) == _HELD}
        self._names = self._names if counts else []
        self._pinned = pinned
        self._counted = {where: known for where, known in self._counted.items() if known() is not None}
        self.rows.clear()
        self._small.clear()
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

    def pack(self, tensor: torch.Tensor) -> Handle | Kept:
        """Adopt a tensor that autograd saves."""
        if self.heard is not None:
            self.heard(tensor)
        if not self._is_ours(tensor):
            return kept(tensor)
        storage = tensor.untyped_storage()
        saved = self._saved.get(identity(tensor)) or self._first(tensor, storage)
        self.n_packs += 1
        handle = Handle(saved, Guard(tensor))
        if saved.action in {SQUEEZE, DERIVE} and saved.again is None:
            handle.full = saved.hold(self.meter, storage)
        if handle.full is not None or self.watch is not None:
            self._attribution.call.pending.append(handle)
        if self.watch is not None:
            self.watch.packed(handle, tensor)
        return handle

    def count(self, tensor: torch.Tensor) -> Kept:
        """Keep a tensor that autograd saves, and count its storage: where all stays, nothing needs a name."""
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
            return kept(tensor)
        storage = tensor.untyped_storage()
        where, n_bytes = (storage_number(storage), tensor._version), storage.nbytes()
        if n_bytes < self._min_bytes or where[0] in self._pinned or not is_plain(tensor):
            return kept(tensor)
        held = known() if (known := self._counted.get(where)) else None
        if held is None:
            held = Held(self._uncounted if self.n_saved in self._not_ours else self.meter, storage)
            self._counted[where] = weakref.ref(held)
            self.n_saved += 1
            self._packed.append(n_bytes)
        self.n_packs += 1
        return kept(tensor, held)

    def _is_ours(self, tensor: torch.Tensor) -> bool:
        if not is_plain(tensor) or in_compiler():
            return False
        storage = tensor.untyped_storage()
        if storage_number(storage) in self._pinned:
            return False
        if storage.nbytes() < self._min_bytes:  # it has its number: those of larger ones are the same at any batch size
            if identity(tensor) not in self._small:
                self._small[identity(tensor)] = StorageRef(storage)
                self._attribution.name()
            return False
        return True

    def _first(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> Saved:
        key, layer_type = self._attribution.name()
        stays = key in self.others or (key in self.near and self.gap_copies > 0)
        action = KEEP if stays else self._action(key)
        saved = Saved(key, layer_type, tensor, action)
        self._saved[saved.identity] = self.rows[key] = saved
        self._names.append(key)
        self.n_saved += 1
        self._packed.append(saved.n_bytes)
        held = saved.hold(self._uncounted if self.others.get(key) == _HELD else self.meter, storage)
        if action == SWAP:
            saved.ticket = self.tier.store(held)
            self.swapped_bytes += saved.n_bytes if saved.ticket else 0
        if action not in {SWAP, SQUEEZE, DERIVE} or (action == SWAP and saved.ticket is None):
            saved.held = held
        del held  # a copy that is done lets go of it
        coming = self._sizes[self.n_saved : self.n_saved + _COMING] if self._sizes else [saved.n_bytes] * _COMING
        self.make_room(sum(coming))
        return saved

    def make_room(self, n_bytes: int) -> None:
        """Wait for copies out until there is room for so many bytes more, or none is under way."""
        while self.meter.n_bytes + n_bytes > self.meter.limit_bytes and self.tier.relieve():
            pass

    def unpack(self, handle: Handle | Kept) -> torch.Tensor:
        """Give a tensor back to autograd: any number of times, in any order, in any thread."""
        if self._probed is not None:
            self._probed.append(handle)
            return torch.empty(0)
        if isinstance(handle, tuple):
            return given_back(handle)
        handle.guard.check()
        with torch.no_grad():
            if handle.squeezed is not None:
                self.make_room(handle.saved.n_bytes)
                tensor = handle.squeezed()
                self.meter.follow(tensor.untyped_storage())
            else:
                tensor = handle.guard.view((handle.full or self.restored(handle.saved)).storage)
            tensor = handle.guard.sharing(tensor)
        handle.saved.unpacked(id(handle))
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
        if graph_task() != self._task:
            self._task, self._cursor = graph_task(), 0
            self._audit()
            if not self._order:
                self._order = list(self.rows)[::-1]
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
            storage = tensor.untyped_storage() if is_plain(tensor) else None
            if storage is not None and storage.nbytes() >= self._min_bytes and storage_number(storage) not in known:
                known.add(storage_number(storage))
                self.make_room(storage.nbytes())
                self.meter.follow(storage)

        return count

    def _audit(self) -> None:
        """Look, at the end of a forward pass, at what was swapped for nothing: the bytes are still there."""
        for saved in list(self.rows.values()):
            if saved.ticket is None or saved.key in self.others or saved.key in self._ahead:
                continue  # what is asked for may stay until it is needed
            viewed_bytes = sum(size.numel() * dtype.itemsize for dtype, _, size, _ in saved.views)
            if saved.ticket.is_away and not saved.ref.expired():
                self.others[saved.key] = _HELD  # first: a slice of the caller's is not ours to count
            elif viewed_bytes < saved.n_bytes / 2:
                self.others[saved.key] = "less than half of the storage is saved"

    def _near(self, saved: Saved) -> None:
        """Keep, from the next step on, what is needed again at once."""
        if saved.ticket is not None:
            gap_s = time.perf_counter() - saved.packed_s
            if gap_s < self.gap_copies * saved.n_bytes * self.tier.out.s_per_byte:
                self.near[saved.key] = "it is needed again before a copy would be there and back"

    def saved_at(self, where: Identity) -> Saved | None:
        """Return the entry of a storage in one state of its contents, if autograd keeps it."""
        return self._saved.get(where)

    def handle_of(self, node: object, name: str) -> Handle | None:
        """Return the handle that a node of the graph holds under a name such as ``_saved_self``."""
        self._probed = []
        try:
            getattr(node, name, None)
            return next((each for each in self._probed if isinstance(each, Handle)), None)
        finally:
            self._probed = None
