"""Publish versions by every plan over the same links, in turn; compare plans with each other and with the cost model.

L is the time of one version through one card.  Every version is read back on every host once it was timed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import isqrt
from statistics import median

import numpy as np

from benchmarks.distribution.hub import Spec
from benchmarks.distribution.rig import NoRig, open_rig
from benchmarks.efforts import Distribution
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from drlnb.planning.distribution import DISTRIBUTION, DistributionView, Link
from drlnb.planning.distribution.cost import HEADER_FRAC
from drlnb.runtime.protocol import Plain
from drlnb.sim.distribution.publish import host_names, simulate_publish

__all__ = ["Measured", "emulated", "network", "network_rows", "plans"]

#: Dask's own way to copy an object to all hosts, as it is called among the plans.
_SCATTER = "scatter"
#: Row -> number of hosts -> limit, on shaped links.
_BARS: Mapping[str, Mapping[int, float]] = {
    "relay-star": {8: 3.2, 16: 6.8},
    "relay-tree": {16: 1.35},
    "relay-binomial": {16: 2.1},
    "relay-scatter": {8: 1.9},
    "chunks-relay": {16: 1.3},
    "bound": {16: 1.5},
    "fidelity": {16: 0.15},
}
#: Share of L after which a relay is killed, and the shortest deadline of a version that hosts forward, in seconds.
_KILL_L, _DEADLINE_S = 0.4, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What every plan came to on one rig."""

    n: int
    rate_mbit: float
    n_bytes: int
    #: Plan -> what :meth:`~benchmarks.distribution.learner.Learner.publish` returned, turn by turn.
    turns: Mapping[str, Sequence[Plain]]
    #: Each turn's undisturbed version, and the one whose relay was killed.
    killed: Mapping[str, Sequence[Plain]]
    shaped: bool = True

    @property
    def link(self) -> Link:
        """The links, with costs of messages as they are in Python."""
        return Link.of(self.rate_mbit * 125e3, header_frac=HEADER_FRAC if self.shaped else 0.0)

    @property
    def once_s(self) -> float:
        """L, without headers, in seconds."""
        return self.n_bytes / self.link.egress_bytes_per_s

    def seconds(self, plan: str) -> list[float]:
        """Return how long each version took."""
        return [float(turn["publish_s"]) for turn in self.turns[plan]]

    def of(self, *kinds: str) -> list[str]:
        """Return the plans of these kinds, fastest first; all, but for Dask's way, where none is named."""
        named = [plan for plan in self.turns if plan != _SCATTER and (not kinds or plan.startswith(kinds))]
        return sorted(named, key=lambda plan: median(self.seconds(plan)))

    @property
    def chunked(self) -> list[str]:
        """The plans that cut shards into chunks, fastest first."""
        return [plan for plan in self.of() if "c=" in plan]

    def predicted_s(self, plan: str) -> float:
        """Return what the closed form says."""
        view = DistributionView(version=1, hosts=host_names(self.n), model_bytes=self.n_bytes, link=self.link)
        return DISTRIBUTION.build(plan).plan(view).predicted_s


def plans(n: int) -> list[str]:
    """Return the plans that are compared at n hosts: each kind at numbers that suit it."""
    relays = [f"relay:m={m}" for m in dict.fromkeys((max(2, isqrt(n)), max(2, n // 2), n))]
    chunked = ["chain:c=64", "chain:c=128", "multitree:m=2,c=64", "multitree:m=4,c=16"]
    return ["star", f"tree:k={max(2, isqrt(n))}", "binomial", *relays, *(chunked if n >= 4 else chunked[:2])]


# ------------------------------------------------------------------ measuring
def network(effort: Distribution) -> Iterator[Row]:
    """Compare all plans on each rig that was asked for."""
    kind = "netns" if effort.rig == "netns" else "loopback"
    for n, rate_mbit in zip(effort.hosts, effort.rate_mbit, strict=True):
        ways, smallest = plans(n), n == min(effort.hosts)
        if smallest and kind == "netns":
            ways.append(_SCATTER)
        try:
            measured = _measure(Spec(kind=kind, n_hosts=n, rate_mbit=rate_mbit), effort, ways, kills=smallest)
        except NoRig as error:
            yield Row(f"network-{n}", f"plans to {n} hosts on shaped links", not_measured=str(error), skipped=True)
        else:
            yield from network_rows(measured)


def emulated(effort: Distribution) -> Iterator[Row]:
    """Compare the distribution patent's plan with a star on emulated cards, which need no root."""
    n = 8
    spec = Spec(kind="loopback", n_hosts=n, rate_mbit=200.0)
    measured = _measure(spec, effort, ["star", f"relay:m={n}"], kills=False)
    yield _faster(measured, "emulated-relay-star", f"relay:m={n}", "star", Bar("ratio", at_least=3.2))


def _measure(spec: Spec, effort: Distribution, ways: Sequence[str], *, kills: bool) -> Measured:
    n, n_bytes, rate = spec.n_hosts, effort.n_bytes, spec.rate_mbit * 125e3
    cards = None if spec.shaped else asdict(Link.of(rate))
    killed: dict[str, list[Plain]] = {"undisturbed": [], "killed": []}
    with open_rig(spec) as rig:
        rig.ask("open", link=cards)
        publish = partial(rig.ask, "publish", n_bytes=n_bytes)
        publish(plan=f"relay:m={n}")  # every host opens its connections to every other one
        asks = {plan: partial(publish, plan=plan, check=True) for plan in ways}
        if _SCATTER in asks:
            asks[_SCATTER] = partial(rig.ask, _SCATTER, n_bytes=n_bytes)
        turns = in_turn(effort.repeats, asks)
        for _ in range(effort.repeats if kills else 0):
            killed["undisturbed"].append(publish(plan=f"relay:m={n}"))
            killed["killed"].append(publish(plan=f"relay:m={n}", kill_after_s=_KILL_L * n_bytes / rate))
    for plan, replies in turns.items():
        if wrong := [host for reply in replies for host in reply.get("wrong", ())]:
            raise RuntimeError(f"{plan}: {', '.join(wrong)} does not hold the version as it was sent")
    return Measured(n=n, rate_mbit=spec.rate_mbit, n_bytes=n_bytes, turns=turns, killed=killed, shaped=spec.shaped)


# ------------------------------------------------------------------ rows
def network_rows(measured: Measured) -> Iterator[Row]:
    """Return the rows of one rig."""
    yield from _times(measured)
    yield from _ratios(measured)
    if measured.shaped:
        yield from _bytes(measured)
    if measured.killed["killed"]:
        yield from _kills(measured)


def _bar(measured: Measured, row: str, on: str = "ratio", *, most: bool = False) -> Bar | None:
    limit = _BARS[row].get(measured.n) if measured.shaped else None
    if limit is None:
        return None
    return Bar(on, at_most=limit) if most else Bar(on, at_least=limit)


def _row(measured: Measured) -> partial[Row]:
    return partial(Row, origin="measured" if measured.shaped else "emulated")


def _times(measured: Measured) -> Iterator[Row]:
    """Return each plan's time beside what was computed and simulated."""
    n, once_s = measured.n, measured.once_s
    where = f"{n} hosts at {measured.rate_mbit:g} Mbit/s"
    for plan in measured.of():
        seconds = measured.seconds(plan)
        simulated_s = simulate_publish(plan, n, measured.n_bytes, measured.link).held_s
        title = f"{plan}, {where}: {median(seconds) / once_s:.2f} L, simulated {simulated_s / once_s:.2f} L"
        computed = measured.predicted_s(plan)
        yield _row(measured)(f"time-{n}-{plan}", title, seconds, against="closed form", baseline_samples=[computed])
    off = {plan: median(measured.seconds(plan)) / measured.predicted_s(plan) - 1 for plan in measured.of()}
    whole = {plan: frac for plan, frac in off.items() if plan not in measured.chunked}
    worst = max(whole, key=lambda plan: abs(whole[plan]))
    title = f"{where}, plans of whole shards: largest distance of measured from computed ({worst})"
    bar = _bar(measured, "fidelity", "value", most=True)
    yield _row(measured)(f"fidelity-{n}", title, [abs(whole[worst])], "of the time", bar=bar)


def _faster(measured: Measured, name: str, plan: str, other: str, bar: Bar | None) -> Row:
    rates = [[1 / seconds for seconds in measured.seconds(each)] for each in (plan, other)]
    title = f"{plan} to {measured.n} hosts: versions per second"
    paired = pair_up(*rates)
    return _row(measured)(name, title, unit="versions/s", against=other, bar=bar, **paired)


def _ratios(measured: Measured) -> Iterator[Row]:
    """Compare plans, each kind at its best number, and the best of all with the bound."""
    n, best_relay = measured.n, measured.of("relay")[0]
    (tree,) = measured.of("tree")
    pairs = {
        "relay-star": (f"relay:m={n}", "star"),
        "relay-tree": (f"relay:m={tree.partition('=')[2]}", tree),
        "relay-binomial": (best_relay, "binomial"),
        "relay-scatter": (f"relay:m={n}", _SCATTER),
        "chunks-relay": (measured.chunked[0], best_relay),
    }
    for name, (plan, other) in pairs.items():
        if other in measured.turns:
            yield _faster(measured, f"{name}-{n}", plan, other, _bar(measured, name))
    best = measured.of()[0]
    bound_s = measured.once_s * (1.0 + measured.link.header_frac)
    against = "one version, with headers, through one card"
    bar = _bar(measured, "bound", most=True)
    seconds = measured.seconds(best)
    figures = partial(_row(measured), against=against, baseline_samples=[bound_s], bar=bar)
    yield figures(f"bound-{n}", f"{best} to {n} hosts", seconds)


def _bytes(measured: Measured) -> Iterator[Row]:
    """Return what went through the cards, by the counters of their interfaces: in each turn, that of the worst plan."""
    n, size = measured.n, measured.n_bytes
    #: Plan -> (turns, 1 + n, 2) bytes: sent and received, of the learner and of each host.
    moved = {plan: np.array([turn["moved"] for turn in measured.turns[plan]]) for plan in measured.of()}
    row = _row(measured)
    once = np.array([moved[plan][:, 0, 0] / size for plan in measured.of("relay", "multitree")])
    title = f"{n} hosts, relay and multitree: the learner sends, at most"
    yield row(f"egress-learner-{n}", title, once.max(axis=0).tolist(), "versions", bar=Bar("value", at_most=1.05))
    shares = {plan: (n - 1) * size / min(n, int(plan.partition("=")[2])) for plan in measured.of("relay")}
    again = {plan: np.array([turn["again"] for turn in measured.turns[plan]])[:, 1:] for plan in shares}
    busiest = np.array([
        (moved[plan][:, 1:, 0] - again[plan]).max(axis=1) / share - 1 for plan, share in shares.items()
    ])
    title = f"{n} hosts, relay: the busiest relay sends (n - 1) S / m once but for at most"
    worst = np.abs(busiest).max(axis=0).tolist()
    yield row(f"egress-host-{n}", title, worst, "of it", bar=Bar("value", at_most=0.03))
    lost = np.array([again[plan].max(axis=1) / share for plan, share in shares.items()])
    title = f"{n} hosts, relay: a relay sends again, since the queue of a receiver's card was full, at most"
    yield row(f"sent-again-{n}", title, lost.max(axis=0).tolist(), "of it")
    received = np.array([each[:, 1:, 1].sum(axis=1) / (n * size) - 1 for each in moved.values()])
    title = f"{n} hosts, every plan: all hosts receive n S but for at most"
    worst = np.abs(received).max(axis=0).tolist()
    yield row(f"ingress-{n}", title, worst, "of it", bar=Bar("value", at_most=0.01))


def _kills(measured: Measured) -> Iterator[Row]:
    """Compare a version one of whose relays is killed under way with one that goes undisturbed."""
    calm, hurt = ([float(turn["publish_s"]) for turn in measured.killed[key]] for key in ("undisturbed", "killed"))
    wrong = sum(len(turn["wrong"]) for turn in measured.killed["killed"])
    deadline_s = max(_DEADLINE_S, 4 * measured.predicted_s(f"relay:m={measured.n}"))
    title = f"relay:m={measured.n}, a relay killed after {_KILL_L:g} L: until every host that lives holds the version"
    bar = Bar("value", at_most=deadline_s)
    yield _row(measured)("killed-relay", title, against="undisturbed", bar=bar, **pair_up(hurt, calm))
    title = "killed relay: living hosts without the version, or with a wrong one"
    yield _row(measured)("killed-relay-wrong", title, [float(wrong)], "hosts", bar=Bar("value", at_most=0.0))
