"""Ask the cost model and the simulator how long a version takes to reach hosts, without any."""

from functools import lru_cache

import numpy as np

from drlnb.planning.distribution import DISTRIBUTION, LEARNER, PRESETS, STRATEGIES, Cost, Link, bound_s, cut, forecast
from drlnb.planning.distribution.planner import CHUNK_BYTES, Forecast, best
from drlnb.planning.registry import Named
from drlnb.records.errors import ConfigError
from drlnb.sim.distribution.publish import Published, host_names, simulate_publish
from drlnb.views.distribution.computed import Computed
from drlnb.views.distribution.simulated import Spread
from drlnb.views.drawing.payload import Floats, Table

__all__ = ["LINKS", "PLANS", "Computed", "Spread", "compute", "numbers_of", "parts", "planner", "simulate"]

#: Kinds of network, and planners.
LINKS, PLANS = tuple(PRESETS), DISTRIBUTION.names
#: Number of the membership under which a publisher's first version travels: who is a relay depends on it.
_EPOCH = 1
#: Numbers of hosts at which plans are compared, each some 20 % beyond the one before.
_HOSTS = tuple(sorted({round(2 * 150 ** (i / 28)) for i in range(29)}))


def numbers_of(name: str) -> dict[str, str]:
    """Return the numbers that a planner takes: ``m`` (relays, trees, intermediate hosts) and ``c`` -> its word for it.

    Examples
    --------
    >>> numbers_of("tree"), numbers_of("multitree"), numbers_of("star")
    ({'m': 'k', 'c': 'levels'}, {'m': 'm', 'c': 'c'}, {})
    """
    return {which: key for key, (which, _) in STRATEGIES[name].params.items()} if name in STRATEGIES else {}


def planner(name: str, m: int = 0, c: int = 0) -> str:
    """Return the name of a planner with those numbers that it takes; 0: left to the planner.

    Examples
    --------
    >>> planner("relay", 8), planner("tree", 4), planner("star", 8), planner("multitree", 3, 16)
    ('relay:m=8', 'tree:k=4', 'star', 'multitree:m=3,c=16')
    """
    given = {"m": m, "c": c}
    return str(Named(name, {key: given[which] for which, key in numbers_of(name).items() if given[which]}))


def parts(plan: str) -> dict[str, object]:
    """Return name, m and chunks of a planner as far as its name says them; nothing of one that is in no registry.

    Examples
    --------
    >>> parts("relay:m=8"), parts("tree:k=4"), parts("auto"), parts("own:mine")
    ({'plan': 'relay', 'm': 8}, {'plan': 'tree', 'm': 4}, {'plan': 'auto'}, {})
    """
    try:
        named = DISTRIBUTION.parse(plan)
    except ValueError:
        return {}
    keys = {key: {"m": "m", "c": "chunks"}[which] for which, key in numbers_of(named.name).items()}
    return {"plan": named.name, **{keys[key]: value for key, value in named.params.items() if key in keys}}


def compute(plan: str, n_hosts: int, model_bytes: int, link: Link) -> Computed:
    """Return what the closed forms say of a plan, and of all others beside it.

    Parameters
    ----------
    plan
        Name of a planner, such as ``relay:m=8``.
    n_hosts, model_bytes
        Hosts beside the learner, and bytes of a version, both at least 1.
    link
        The network.

    Raises
    ------
    ValueError
        If there is no such planner, or it refuses its numbers.
    """
    said, cost = _forecast(plan, n_hosts, model_bytes, link), Cost.of(n_hosts, model_bytes, link)
    curves: dict[str, tuple[Floats, Floats]] = {}
    for name, strategy in STRATEGIES.items():
        mine, takes = name == said.strategy, numbers_of(name)
        m = np.array(list(strategy.m(n_hosts)) if "m" in takes else [1, n_hosts], dtype=np.float64)
        c = np.array([said.c] if mine else [1] if name == "relay" else strategy.c, dtype=np.float64)
        curves[name] = m, strategy.seconds(cost, m[:, None], c[None, :]).min(axis=1)
    return Computed(
        plan=plan,
        name=_name(said),
        n_hosts=n_hosts,
        model_bytes=model_bytes,
        m=said.m,
        link=(
            f"{link.learner_bytes_per_s / 0.117e9:g} Gbit/s, latency {link.latency_s * 1e6:g} us, "
            f"{link.overhead_s * 1e6:g} us per message"
        ),
        publish_s=said.publish_s,
        one_s=cost.learner,
        bound_s=bound_s(cost),
        curves=curves,
        egress=_egress(said, n_hosts, model_bytes),
        scaling=_scaling(plan, model_bytes, link),
    )


def _scaling(plan: str, model_bytes: int, link: Link) -> dict[str, tuple[Floats, Floats]]:
    """Return hosts and seconds of every strategy at its best numbers, of the bound, and of a plan with numbers."""
    known = dict(_best_scaling(model_bytes, link))
    if ":" in plan:
        own = [_forecast(plan, n, model_bytes, link).publish_s for n in _HOSTS]
        known[plan.replace(":", " ").replace(",", ", ")] = known["bound"][0], np.array(own)
    return known


@lru_cache(maxsize=8)
def _best_scaling(model_bytes: int, link: Link) -> dict[str, tuple[Floats, Floats]]:
    bounds = [bound_s(Cost.of(n, model_bytes, link)) for n in _HOSTS]
    best_s = {
        name: [forecast(name, n, model_bytes, link, chunk_bytes=CHUNK_BYTES).publish_s for n in _HOSTS]
        for name in STRATEGIES
    }
    return {name: (np.array(_HOSTS, float), np.array(each)) for name, each in {**best_s, "bound": bounds}.items()}


def _forecast(plan: str, n_hosts: int, model_bytes: int, link: Link) -> Forecast:
    """Return what the planner expects of itself."""
    DISTRIBUTION.build(plan)  # refuses what it cannot plan
    named = DISTRIBUTION.parse(plan)
    if named.name == "auto":
        return best(n_hosts, model_bytes, link)
    numbers = {
        which: int(named.params.get(key, usual)) for key, (which, usual) in STRATEGIES[named.name].params.items()
    }
    return forecast(named.name, n_hosts, model_bytes, link, **numbers, chunk_bytes=CHUNK_BYTES)


def _name(said: Forecast) -> str:
    """Return a strategy with its numbers in words."""
    usual = dict(STRATEGIES[said.strategy].params.values()).get("c", 1)
    return planner(said.strategy, said.m, 0 if said.c == max(1, usual) else said.c).replace(":", " ").replace(",", ", ")


def _egress(said: Forecast, n_hosts: int, model_bytes: int) -> Floats:
    """Return the versions that the learner (first) and each host send; that shards go in chunks changes nothing."""
    if said.strategy == "relay":  # its plan has up to n^2 messages, too many to be made while a slider moves
        sent = np.zeros(n_hosts + 1)
        for i, (start, stop) in enumerate(cut(model_bytes, said.m)):
            sent[1 + (_EPOCH * said.m + i) % n_hosts] = (stop - start) * (n_hosts - 1)
        sent[0] = model_bytes
    else:
        levels = said.c if said.strategy == "tree" else 1
        sent = np.roll(STRATEGIES[said.strategy].make(n_hosts, model_bytes, said.m, levels, _EPOCH).egress_bytes(), 1)
    egress: Floats = sent / model_bytes
    return egress


def simulate(plan: str, n_hosts: int, model_bytes: int, link: Link, kill: int | None = None) -> Spread:
    """Publish one version message by message on a virtual clock.

    Parameters
    ----------
    plan, n_hosts, model_bytes, link
        As of :func:`compute`.
    kill
        Number of the relay (or of what else the learner sends to) that is gone half way; None: none.

    Raises
    ------
    ConfigError
        If there is no relay of that number.
    ValueError
        As of :func:`compute`.
    """
    said = _forecast(plan, n_hosts, model_bytes, link)
    lost: tuple[tuple[str, float, int], ...] = ()
    result = simulate_publish(plan, n_hosts, model_bytes, link)
    hosts, first = host_names(n_hosts), [route[0][1] for route in result.plan.routes]
    if kill is not None:
        if not 0 <= kill < len(first):
            raise ConfigError(f"relay must be from 0 to {len(first) - 1} in {_name(said)}, got {kill}")
        host, at_s = hosts[first[kill]], result.held_s / 2
        result = simulate_publish(plan, n_hosts, model_bytes, link, fails={host: at_s})
        lost = ((host, at_s, kill),)
    begins = {send.route: send.start for send in reversed(result.plan.sends)}  # the first send of each route
    starts = sorted(set(begins.values()))
    return Spread(
        plan=plan,
        name=_name(said),
        look=list(STRATEGIES).index(said.strategy),
        model_bytes=model_bytes,
        hosts=hosts,
        messages=_columns(result, hosts, starts, link),
        sizes=np.diff([*starts, model_bytes]),
        publish_s=result.publish_s,
        lost=lost,
        dropped=result.failed,
    )


def _columns(result: Published, hosts: tuple[str, ...], starts: list[int], link: Link) -> Table:
    number = {"": LEARNER} | {host: i for i, host in enumerate(hosts)}
    planned = {(sender, receiver, send.start, send.stop) for send, sender, receiver in result.plan.messages()}
    ends = [(number[each.sender], number[each.receiver], each.start, each.stop) for each in result.messages]
    sender, receiver, start, stop = np.array(ends, dtype=np.int64).reshape(-1, 4).T
    wire = (stop - start) * (1.0 + link.header_frac) / link.ingress_bytes_per_s
    return {
        "sender": sender,
        "receiver": receiver,
        "bytes": (stop - start).astype(np.float64),
        "wire": np.maximum(wire, link.overhead_s),
        "begun": np.array([each.begun_t for each in result.messages]),
        "done": np.array([each.done_t for each in result.messages]),
        "shard": np.searchsorted(starts, start, side="right") - 1,
        "repair": np.array([each not in planned for each in ends], dtype=np.int64),
    }
