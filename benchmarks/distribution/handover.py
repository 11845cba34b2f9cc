"""Hand a version over to the actor processes of one host, and pack one: what happens at both ends of the network."""

import io
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Semaphore
from tempfile import TemporaryDirectory

from benchmarks.efforts import Distribution
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from drlnb.distribution.flat import pack as pack_flat
from drlnb.runtime.ipc.host_store import HostStore, StoreView

__all__ = ["actors", "handover", "pack"]

#: Actor processes: few, and as many as the distribution patent has on a machine (paragraph 105).
_FEW, _MANY = 4, 36
#: Versions per turn, of which the median counts; and the pause between two looks at what actors have, in seconds.
_VERSIONS, _LOOK_S = 7, 2e-4
#: Linear layers of the model that is packed: 82 tensors.
_LAYERS = 41


@contextmanager
def actors(n: int, act: Callable[..., None], *args: object) -> Iterator[list[Semaphore]]:
    """Start actors, with a semaphore each to wake it; they are up inside, and have ended afterwards."""
    context = multiprocessing.get_context("spawn")
    up, bells = context.Semaphore(0), [context.Semaphore(0) for _ in range(n)]
    processes = [context.Process(target=act, args=(up, bell, *args)) for bell in bells]
    for process in processes:
        process.start()
    for _ in processes:
        up.acquire()
    yield bells
    for process, bell in zip(processes, bells, strict=True):
        bell.release()
        process.join()


def _act_by_views(up: Semaphore, bell: Semaphore, path: str) -> None:
    view = StoreView(path)
    up.release()
    for _ in range(_VERSIONS):
        bell.acquire()  # as an agent's message wakes a collector
        view.refresh()
        int(view.bytes[0]) + int(view.bytes[-1])
    bell.acquire()
    view.close()


def _by_views(data: bytes, n_actors: int) -> float:
    """Return the median of seconds until all actors have a version."""
    store, took = HostStore(len(data)), []
    with actors(n_actors, _act_by_views, store.path) as bells:
        for version in range(1, _VERSIONS + 1):
            began = time.perf_counter()
            store.write(version, data)
            for bell in bells:
                bell.release()
            while store.applied() != (1, version):
                time.sleep(_LOOK_S)
            took.append(time.perf_counter() - began)
    store.close()
    return sorted(took)[_VERSIONS // 2]


def _act_by_messages(up: Semaphore, bell: Semaphore, versions: str, done: str) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.SUB) as sub, context.socket(zmq.PUSH) as push:
        sub.subscribe(b"")
        sub.connect(versions)
        push.connect(done)
        up.release()
        for _ in range(_VERSIONS):
            message = sub.recv()
            push.send(message[:1] + message[-1:])
        bell.acquire()


def _by_messages(data: bytes, n_actors: int) -> float:
    """Return the same for one ZeroMQ publisher and a copy per actor, as in the distribution patent."""
    import zmq

    with (
        TemporaryDirectory() as folder,
        zmq.Context() as context,
        context.socket(zmq.XPUB) as pub,
        context.socket(zmq.PULL) as pull,
    ):
        pub.sndhwm, pub.xpub_verbose, took = 0, True, []  # every subscription is told
        addresses = f"ipc://{folder}/versions", f"ipc://{folder}/done"
        pub.bind(addresses[0])
        pull.bind(addresses[1])
        with actors(n_actors, _act_by_messages, *addresses):
            for _ in range(n_actors):
                pub.recv()  # a subscription
            for _ in range(_VERSIONS):
                began = time.perf_counter()
                pub.send(data)
                for _ in range(n_actors):
                    pull.recv()
                took.append(time.perf_counter() - began)
    return sorted(took)[_VERSIONS // 2]


def handover(effort: Distribution) -> Iterator[Row]:
    """Compare the host store with messages, and many actors with few."""
    data, size = bytes(effort.n_bytes), f"{effort.model_mb:g} MB"
    ways = {"messages": partial(_by_messages, data, _MANY), "many": partial(_by_views, data, _MANY)}
    took = in_turn(effort.repeats, ways | {"few": partial(_by_views, data, _FEW)})
    rates = [[1.0 / each for each in took[kind]] for kind in ("many", "messages")]
    title, bar = f"{size} to {_MANY} actor processes of a host by views", Bar("ratio", at_least=15.0)
    yield Row("handover", title, unit="/s", against="ZeroMQ ipc, a copy per actor", bar=bar, **pair_up(*rates))
    title, bar = f"{size} by views to {_MANY} actor processes", Bar("ratio", at_most=2.5)
    yield Row("handover-many", title, unit="s", against=f"to {_FEW}", bar=bar, **pair_up(took["many"], took["few"]))


def pack(effort: Distribution) -> Iterator[Row]:
    """Compare the flat payload with what torch writes."""
    import torch

    width = int((effort.n_bytes / 4 / _LAYERS) ** 0.5)
    module = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(_LAYERS)])
    out, state = pack_flat(module), module.state_dict()
    ways = {"flat": lambda: pack_flat(module, out), "torch": lambda: torch.save(state, io.BytesIO())}
    took = in_turn(10 * effort.repeats, {kind: partial(_seconds, way) for kind, way in ways.items()})
    rates = [[1.0 / each for each in took[kind]] for kind in ways]
    title, bar = f"{effort.model_mb:g} MB, {2 * _LAYERS} tensors, packed flat", Bar("ratio", at_least=15.0)
    yield Row("pack", title, unit="/s", against="torch.save into memory", bar=bar, **pair_up(*rates))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
