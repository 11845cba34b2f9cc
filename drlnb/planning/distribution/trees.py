"""Construct the plans: star, tree, binomial, chain, relay (the distribution patent) and multitree.

All of them are routes of messages for one executor.  `relay` cuts the version into m shards, one per relay, and each
relay forwards its shard to all other hosts.  `multitree` lets each host forward in exactly one of m trees, a chunk at a
time, as SplitStream does: nobody sends more than about one version, and everything is in flight at once.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from drlnb.planning.distribution import cost as costs
from drlnb.planning.distribution.cost import Seconds
from drlnb.planning.distribution.plans import LEARNER, Plan, Route, Send

__all__ = ["STRATEGIES", "Strategy", "binomial", "chain", "cut", "multitree", "relay", "star", "tree"]


def cut(total: int, n_parts: int) -> tuple[tuple[int, int], ...]:
    """Cut bytes [0, `total`) into contiguous ranges.

    Parameters
    ----------
    total
        Number of bytes, at least 0.
    n_parts
        Number of parts, at least 1.

    Returns
    -------
    tuple of (int, int)
        (start, stop) of each part that is not empty, in order; sizes differ by at most one, the larger ones first.

    References
    ----------
    The distribution patent, paragraphs 13-15: shards.

    Examples
    --------
    >>> cut(10, 3)
    ((0, 4), (4, 7), (7, 10))
    """
    size, longer = divmod(total, n_parts)
    ends = [i * size + min(i, longer) for i in range(n_parts + 1)]
    return tuple([(start, stop) for start, stop in itertools.pairwise(ends) if start < stop])


def star(n_hosts: int, model_bytes: int) -> Plan:
    """Plan one direct message of the whole version to each host, in order: what everybody does without a plan.

    Parameters
    ----------
    n_hosts
        Number of hosts beside the learner, at least 0.
    model_bytes
        Size of one version in bytes, at least 1.

    Raises
    ------
    ValueError
        If a number is too small; so do all constructions of this module.
    """
    _refuse(n_hosts, model_bytes)
    return _whole(n_hosts, model_bytes, [((LEARNER, host),) for host in range(n_hosts)])


def tree(n_hosts: int, model_bytes: int, k: int, levels: int = 2) -> Plan:
    """Plan whole versions through intermediate hosts (the distribution patent's second baseline).

    Parameters
    ----------
    n_hosts, model_bytes
        As of :func:`star`.
    k
        Hosts that the learner sends to, at least 1; at most `n_hosts` count.
    levels
        2: the first k hosts serve all others in turn; more: each host serves k others, on so many levels at most.
    """
    _refuse(n_hosts, model_bytes, k=k)
    if levels < 2 or (levels > 2 and sum(k**level for level in range(1, levels + 1)) < n_hosts):
        raise ValueError(f"a tree of k = {k} must have 2 levels, or as many as {n_hosts} hosts take, got {levels}")
    tops = min(k, n_hosts)
    routes: list[list[tuple[int, int]]] = [[(LEARNER, host)] for host in range(tops)]
    top_of = list(range(tops))
    for host in range(tops, n_hosts):
        # Two levels: dealt in turn.  More: a heap whose root is the learner, so host h stands at place h + 1.
        parent = host % tops if levels == 2 else host // k - 1
        top_of.append(top_of[parent])
        routes[top_of[host]].append((parent, host))
    return _whole(n_hosts, model_bytes, [tuple(route) for route in routes], n_in_flight=1)


def binomial(n_hosts: int, model_bytes: int) -> Plan:
    """Plan whole versions along a binomial tree: who has it sends to half of those that have not, one after another.

    Parameters
    ----------
    n_hosts, model_bytes
        As of :func:`star`.
    """
    _refuse(n_hosts, model_bytes)
    routes, below = [], n_hosts
    while below > 0:  # the learner serves hosts 0..below-1 still: the upper half of these and itself goes to one host
        middle = below - (below + 1) // 2
        routes.append(((LEARNER, middle), *_served(middle, below)))
        below = middle
    return _whole(n_hosts, model_bytes, routes, n_in_flight=1)


def _served(low: int, high: int) -> Route:
    """Return the messages below host `low` that serves hosts low..high-1."""
    pairs: list[tuple[int, int]] = []
    while high - low > 1:
        middle = high - (high - low) // 2
        pairs += [(low, middle), *_served(middle, high)]
        high = middle
    return tuple(pairs)


def chain(n_hosts: int, model_bytes: int, n_chunks: int = 1) -> Plan:
    """Plan one line of hosts along which all chunks travel one behind another.

    Parameters
    ----------
    n_hosts, model_bytes
        As of :func:`star`.
    n_chunks
        Parts of the version that travel on their own, at least 1.
    """
    _refuse(n_hosts, model_bytes, n_chunks=n_chunks)
    line = tuple([(host - 1, host) for host in range(n_hosts)])  # the learner is -1
    return _sharded(n_hosts, model_bytes, [line] if line else [], n_chunks)


def relay(n_hosts: int, model_bytes: int, n_relays: int, n_chunks: int = 1, epoch: int = 0) -> Plan:
    """Plan one shard per relay, each of which forwards its own to all other hosts (the distribution patent).

    Parameters
    ----------
    n_hosts, model_bytes
        As of :func:`star`.
    n_relays
        Relays and shards, at least 1; at most `n_hosts` count.
    n_chunks
        Parts of a shard that travel on their own, at least 1; the patent has 1.
    epoch
        Number of the membership: the relay of shard i is host ``(epoch n_relays + i) mod n_hosts``, so that a slow host
        is not a relay for ever.

    Notes
    -----
    Relay r forwards to r - 1, r - 2, ... around the circle: relays in step aim at different hosts, and of those that
    begin one after another, as the learner serves them, no more than two aim at one.  By r + 1, r + 2, ... all would.
    """
    _refuse(n_hosts, model_bytes, n_relays=n_relays, n_chunks=n_chunks)
    m = min(n_relays, n_hosts)
    routes = []
    for i in range(m):
        first = (epoch * m + i) % n_hosts
        others = [(first - step) % n_hosts for step in range(1, n_hosts)]
        routes.append(((LEARNER, first), *((first, other) for other in others)))
    return _sharded(n_hosts, model_bytes, routes, n_chunks)


def multitree(n_hosts: int, model_bytes: int, n_relays: int, n_chunks: int = 1) -> Plan:
    """Plan one shard per tree, in chunks; each host forwards in exactly one of the trees.

    Parameters
    ----------
    n_hosts, model_bytes
        As of :func:`star`.
    n_relays
        Trees and shards, at least 2 (one host needs none); at most `n_hosts` count.
    n_chunks
        Parts of a shard that travel on their own, at least 1.

    Notes
    -----
    Tree i is a heap: first the hosts h with ``h mod m == i``, which forward, then all others, which do not, downwards
    from host ``i n // m``.  With as many trees as hosts it is the patent's plan.
    """
    _refuse(n_hosts, model_bytes, n_relays=n_relays, n_chunks=n_chunks)
    if n_relays < 2 <= n_hosts:
        raise ValueError(f"n_relays must be >= 2 for a multitree, got {n_relays}")
    m = min(n_relays, n_hosts)
    routes = []
    for i in range(m):
        inner = list(range(i, n_hosts, m))
        around = [(i * n_hosts // m - 1 - step) % n_hosts for step in range(n_hosts)]
        order = inner + [host for host in around if host % m != i]
        fan_out = -(-(n_hosts - 1) // len(inner))
        pairs = [(order[(place - 1) // fan_out], host) for place, host in enumerate(order) if place]
        routes.append(((LEARNER, order[0]), *pairs))
    return _sharded(n_hosts, model_bytes, routes, n_chunks)


def _refuse(n_hosts: int, model_bytes: int, **at_least_one: int) -> None:
    if n_hosts < 0:
        raise ValueError(f"n_hosts must be >= 0, got {n_hosts}")
    for name, value in {"model_bytes": model_bytes, **at_least_one}.items():
        if value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")


def _whole(n_hosts: int, model_bytes: int, routes: Iterable[Route], n_in_flight: int = 4) -> Plan:
    """Return a plan that sends the whole version along each route."""
    routes = tuple(routes)
    sends = tuple([Send(0, model_bytes, i) for i in range(len(routes))])
    return Plan(n_hosts=n_hosts, model_bytes=model_bytes, routes=routes, sends=sends, n_in_flight=n_in_flight)


def _sharded(n_hosts: int, model_bytes: int, routes: Iterable[Route], n_chunks: int) -> Plan:
    """Return a plan that sends one shard along each route, the first chunks of all shards first."""
    routes = tuple(routes)
    shards = cut(model_bytes, len(routes)) if routes else ()
    chunks = [cut(stop - start, n_chunks) for start, stop in shards]
    sends = [
        Send(shards[i][0] + start, shards[i][0] + stop, i)
        for k in range(n_chunks)
        for i, parts in enumerate(chunks)
        if k < len(parts)
        for start, stop in [parts[k]]
    ]
    return Plan(n_hosts=n_hosts, model_bytes=model_bytes, routes=routes, sends=tuple(sends))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to construct plans from two numbers: m relays, trees or intermediate hosts, and c chunks or levels."""

    #: Takes hosts, bytes, m, c and the epoch.
    make: Callable[[int, int, int, int, int], Plan]
    #: Closed form of its time.
    seconds: Seconds
    #: Numbers that are tried for n hosts.
    m: Callable[[int], Iterable[int]] = lambda n: (1,)
    c: tuple[int, ...] = (1,)
    #: Parameter -> m or c that it sets, and its value where nobody gives one; 0: the best.
    params: Mapping[str, tuple[str, int]] = field(default_factory=dict)


_M, _C = ("m", 0), ("c", 0)
_FROM_ONE: Callable[[int], Iterable[int]] = lambda n: range(1, n + 1)  # noqa: E731
#: Name -> how its plans are made.  Of equal times the first one's plan is taken: it has the fewest messages.
STRATEGIES: Mapping[str, Strategy] = {
    "star": Strategy(make=lambda n, size, m, c, epoch: star(n, size), seconds=costs.star_s),
    "tree": Strategy(
        make=lambda n, size, m, c, epoch: tree(n, size, m, c),
        seconds=costs.tree_s,
        m=_FROM_ONE,
        c=(2,),
        params={"k": _M, "levels": ("c", 2)},
    ),
    "binomial": Strategy(make=lambda n, size, m, c, epoch: binomial(n, size), seconds=costs.binomial_s),
    "chain": Strategy(
        make=lambda n, size, m, c, epoch: chain(n, size, c),
        seconds=costs.chain_s,
        c=tuple(1 << i for i in range(10)),
        params={"c": _C},
    ),
    "relay": Strategy(make=relay, seconds=costs.relay_s, m=_FROM_ONE, params={"m": _M, "c": ("c", 1)}),
    "multitree": Strategy(
        make=lambda n, size, m, c, epoch: multitree(n, size, m, c),
        seconds=costs.multitree_s,
        m=lambda n: range(min(2, n), min(32, n) + 1),
        c=tuple(1 << i for i in range(6)),
        params={"m": _M, "c": _C},
    ),
}
