"""Lease slots of the pool to a loop of the user's own, and run its functions there."""

import asyncio
import contextlib
import sys
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from drlnb.fleet.cluster.pool import Client
from drlnb.fleet.faces import say
from drlnb.fleet.plain import COUNT, Row
from drlnb.planning.leasing.requests import PRIORITIES
from drlnb.records.attributes import fixed
from drlnb.records.errors import ConfigError, LeaseLost
from drlnb.records.ids import Fence
from drlnb.records.settings import SECONDS
from drlnb.runtime.protocol import OWN

if TYPE_CHECKING:
    from concurrent.futures import Future

    from drlnb.runtime.client.user_lease import LoopLease

__all__ = ["Lease", "Leases"]

T = TypeVar("T")

#: A thread, and the coroutine that runs in it, if any.
_Place = tuple[int, "asyncio.Task[Any] | None"]

#: Longest wait for a lease to be given back or given up, in seconds: above the pool's patience with a silent function.
_END_S = 30.0


@fixed("held", "place")
class Lease:
    """Slots of the pool, held from the beginning of a ``with`` block to its end; made by :meth:`Fleet.lease`.

    Inside a function that it runs, the same name means the slot: ``lease.device`` is the device that torch shall use,
    ``lease.state`` a dict whose contents stay there until the block ends, ``lease.rank`` which of several slots it is,
    ``lease.progress()`` says that a long function is still at work, and ``lease.asked_to_yield`` is as here.

    Notes
    -----
    Slots are lent to others between two leases: what shall last longer than a block must be returned from a function.
    """

    #: Its name, as journals and pictures show it.
    name: str
    held: "LoopLease | None"
    #: Where its block began.
    place: _Place

    def __init__(
        self, leases: "Leases", name: str, n_slots: int, make: "Callable[[], LoopLease]", wait_s: float | None
    ) -> None:
        self._leases, self._wanted, self._make, self._wait_s = leases, n_slots, make, wait_s
        self.name, self.held, self.place = name, None, _here()
        self._used = False

    def __repr__(self) -> str:
        if self.held is None:
            return f"<Lease {self.name!r}: {'over' if self._used else 'not taken yet'}>"
        state = f"lost, {self.held.lost}" if self.held.lost else "held"
        return f"<Lease {self.name!r} {self.fence}: {', '.join(self.slots)}, {state}>"

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        from drlnb.runtime.children.user_functions import here

        return here, ()

    # ------------------------------------------------------------------ the block
    def open(self) -> Self:
        """Wait for the slots, as the beginning of a ``with`` block does; :meth:`close` is then yours to call.

        Raises
        ------
        ConfigError
            If a lease of this name is open, or the pool can never grant it, be it only because blocks around this one
            hold its slots.
        TimeoutError
            If it was not granted within ``wait_s``.
        """
        with self._asking() as held:
            if self._wait_s is None:
                self._leases.refuse_endless_wait(f"lease {self.name!r}", self._wanted)
            self._leases.sync(held.acquire(self._wait_s))
        return self

    __enter__ = open

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        self._close(error)

    async def __aenter__(self) -> Self:
        with self._asking() as held:
            if self._wait_s is None:
                await self._leases.refuse_endless_await(f"lease {self.name!r}", self._wanted)
            await self._leases.wait(held.acquire(self._wait_s))
        return self

    async def __aexit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        held = self._end(error)
        if held is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leases.wait(held.release()), _END_S)

    def close(self) -> None:
        """Give the slots back now; harmless when that was done."""
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        held = self._end(error)
        if held is not None:
            with contextlib.suppress(TimeoutError):
                self._leases.sync(held.release(), timeout_s=_END_S)

    @contextlib.contextmanager
    def _asking(self) -> "Iterator[LoopLease]":
        """Have the name while the slots are asked for, and keep it if they are granted."""
        if self._used:
            raise ConfigError(f"lease {self.name!r} was used before: ask for a new one with fleet.lease(...)")
        if self._leases.open.setdefault(self.name, self) is not self:
            raise ConfigError(
                f"a lease {self.name!r} is open already: end its block first, or give this one another name"
            )
        self._used, self.place = True, _here()
        held = self._make()
        try:
            yield held
            self.held = held
        except TimeoutError:
            if self._wait_s is None:
                raise
            raise TimeoutError(f"lease {self.name!r} was not granted within wait_s = {self._wait_s:g} s") from None
        finally:
            if self.held is None:
                del self._leases.open[self.name]
                self._leases.start(held.release())  # it may have been granted in this moment

    def _end(self, error: BaseException | None) -> "LoopLease | None":
        held, self.held = self.held, None
        if held is not None:
            self._leases.open.pop(self.name, None)
            if held.lost and not isinstance(error, LeaseLost):
                say(f"lease {self.name!r} was lost before its block ended: {held.lost}")
        return held

    # ------------------------------------------------------------------ what it is
    @property
    def slots(self) -> tuple[str, ...]:
        """Names of its slots."""
        return tuple(str(slot["slot"]) for slot in self._taken().slots)

    @property
    def fence(self) -> Fence:
        """Its fence: every lease of the pool has a higher one than those before it."""
        return self._taken().fence

    @property
    def device(self) -> str:
        """What torch calls the device of its slots, there: ``cuda`` or ``cpu``."""
        return str(self._taken().slots[0]["device"]).partition(":")[0]

    @property
    def n_slots(self) -> int:
        """How many slots it holds."""
        return len(self._taken().slots)

    @property
    def asked_to_yield(self) -> bool:
        """Whether somebody waits for a slot like this one: end the block when it suits, and ask for a new lease.

        Once true it stays so until the lease ends.  Inside a function on the slot it says the same.
        """
        return self._taken().asked

    @property
    def state(self) -> dict[object, Any]:
        """A dict that lives on the slot, for functions that the lease runs.

        Raises
        ------
        ConfigError
            Anywhere else: nothing of it is here.
        """
        raise self._only_there("state")

    @property
    def rank(self) -> int:
        """Which slot of the lease a function runs on, counted from 0; elsewhere it raises, as :attr:`state` does."""
        raise self._only_there("rank")

    def progress(self) -> None:
        """Report from within a long function that it is still at work.

        Raises
        ------
        ConfigError
            Outside of a function that the lease runs.
        """
        raise self._only_there("progress()")

    def _only_there(self, member: str) -> ConfigError:
        return ConfigError(f"lease.{member} is on the slot: use it in a function that lease.run(function) runs there")

    def _taken(self) -> "LoopLease":
        if self.held is None:
            why = "is over" if self._used else "is not taken yet"
            raise ConfigError(f"lease {self.name!r} {why}: use it inside `with fleet.lease(...) as lease:`")
        return self.held

    # ------------------------------------------------------------------ using it
    def run(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
        """Run a function on the slot and return what it returns.

        Parameters
        ----------
        fn
            Any function: of a notebook cell, a script or an installed module.
        *args, **kwargs
            Its arguments.  They travel by pickle, as do the function, what it uses from around it, and the result.

        Returns
        -------
        object
            The result; of a lease of several slots, a list: the function runs on each of them at the same time.

        Raises
        ------
        LeaseLost
            If the lease is lost: its holder was silent for too long, held it for too long, or the slot's process died.
        ConfigError
            If the lease is not held, or the function or an argument cannot be pickled.
        TimeoutError
            If the function gave no sign of life for ``timeout_s`` and was interrupted.
        Exception
            What the function raised; its traceback on the slot is shown as the cause.  Of several slots it is the
            first that raised, and the function is interrupted on the others.
        """
        held = self._taken()
        return self._results(held, self._leases.sync(self._started(held, fn, args, kwargs)))

    async def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
        """Do as :meth:`run` without blocking: ``await lease.submit(fn, ...)``; a cancelled function is interrupted."""
        held = self._taken()
        return self._results(held, await self._leases.wait(self._started(held, fn, args, kwargs)))

    def _started(
        self, held: "LoopLease", fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Coroutine[object, object, list[tuple[int, Row]]]:
        from drlnb.runtime.ipc.pickling import pack_call

        held.check()
        return held.run(self.name, pack_call(fn, args, kwargs))

    def _results(self, held: "LoopLease", answers: list[tuple[int, Row]]) -> Any:
        for _, answer in answers:
            sys.stdout.write(answer["said"])
        results = [held.result(rank, answer) for rank, answer in answers]
        return results[0] if len(results) == 1 else results


class Leases:
    """The leases of one fleet: their names, and the thread that keeps them.

    Parameters
    ----------
    client
        The fleet's Dask client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Two notebooks may use the same name.
        self._id = f"{OWN}{uuid.uuid4().hex[:8]}"
        #: Leases that are asked for or held, by name.
        self.open: dict[str, Lease] = {}
        self._rounds: dict[str, int] = {}

    def make(self, name: str, *, n_slots: int, priority: int, wait_s: float | None, timeout_s: float | None) -> Lease:
        """Return a lease that is not taken yet."""
        from drlnb.runtime.client.user_lease import LoopLease

        _check(name, n_slots, priority, wait_s, timeout_s)

        def unmet(n_up: int) -> None:
            wants = "a slot" if n_slots == 1 else f"{n_slots} slots at once"
            say(f"lease {name!r} cannot be satisfied now and waits: it wants {wants}, and {n_up} of the pool's are up")

        def make() -> LoopLease:
            self._rounds[name] = self._rounds.get(name, 0) + 1
            return LoopLease(
                self._client,
                task=f"{self._id}/{name}",
                round=self._rounds[name],
                n_slots=n_slots,
                priority=priority,
                timeout_s=timeout_s,
                on_unmet=unmet,
            )

        return Lease(self, name, n_slots, make, wait_s)

    def close(self) -> None:
        """Give back whatever is held."""
        for lease in list(self.open.values()):
            lease.close()

    def refuse_endless_wait(self, what: str, n_slots: int = 1) -> None:
        """Refuse to block this thread until there are slots, if blocks that it is in hold those that are needed.

        Parameters
        ----------
        what
            What waits, in words.
        n_slots
            Slots that it needs at once.

        Raises
        ------
        ConfigError
            If the pool has not so many beside those that are held.
        """
        ours = self._around(lambda place, here: place[0] == here[0])
        if ours:
            self.sync(_refuse_endless(ours, what, n_slots))

    async def refuse_endless_await(self, what: str, n_slots: int = 1) -> None:
        """Do as :meth:`refuse_endless_wait` in a coroutine: other coroutines of its thread may end their blocks."""
        ours = self._around(lambda place, here: place[0] == here[0] and place[1] in (None, here[1]))
        if ours:
            await self.wait(_refuse_endless(ours, what, n_slots))

    def _around(self, encloses: "Callable[[_Place, _Place], bool]") -> "dict[str, LoopLease]":
        here = _here()
        held = {name: lease.held for name, lease in list(self.open.items()) if encloses(lease.place, here)}
        return {name: lease for name, lease in held.items() if lease is not None and not lease.lost}

    def start(self, work: Coroutine[object, object, T]) -> "Future[T]":
        """Run a coroutine in the client's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._client.loop.asyncio_loop)

    def sync(self, work: Coroutine[object, object, T], *, timeout_s: float | None = None) -> T:
        """Run a coroutine in the client's thread and wait for it; Ctrl-C cancels it."""
        future = self.start(work)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    async def wait(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine in the client's thread and await it."""
        return await asyncio.wrap_future(self.start(work))


def _here() -> _Place:
    try:
        return threading.get_ident(), asyncio.current_task()
    except RuntimeError:
        return threading.get_ident(), None


async def _refuse_endless(ours: "Mapping[str, LoopLease]", what: str, n_slots: int) -> None:
    n_held = sum(len(lease.slots) for lease in ours.values())
    try:
        n_pool = await next(iter(ours.values())).pool_size()
    except (OSError, TimeoutError):  # the cluster stumbles, or is gone: whoever waits will hear of that
        return
    if n_held + n_slots > n_pool >= n_slots:
        raise ConfigError(
            f"{what} would wait for ever: this is inside the block of lease {', '.join(map(repr, ours))}, which holds "
            f"{n_held} of the pool's {n_pool} slots; end that block first"
        )


def _check(name: object, n_slots: object, priority: object, wait_s: object, timeout_s: object) -> None:
    named = isinstance(name, str) and name.strip() and "/" not in name
    times = {key: s for key, s in (("wait_s", wait_s), ("timeout_s", timeout_s)) if s is not None}
    problems = [
        "" if named else f"name must be a text without '/', got {name!r}",
        COUNT.problem("n_slots", n_slots),
        PRIORITIES.problem("priority", priority),
        *(f"{key} must be None or {SECONDS.words}, got {s!r}" for key, s in times.items() if SECONDS.problem(key, s)),
    ]
    if wrong := [problem for problem in problems if problem]:
        raise ConfigError(wrong)
