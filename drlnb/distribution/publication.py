"""Wait for a version to reach its hosts, and read what came of it."""

import asyncio
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from drlnb.planning.distribution import LEARNER, Link
from drlnb.records.base import Record
from drlnb.records.columns import distribution as words

__all__ = ["Publication", "PublishReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReport:
    """What came of one version."""

    version: int
    #: Hosts that hold it.
    n_hosts: int
    n_bytes: int
    #: Bytes of it that travelled to each host, and those that hosts kept, since they held them already; repairs and who
    #: came late apart.
    sent_bytes: int
    kept_bytes: int
    #: Name of the planner, and what it chose: strategy with its numbers, as far as they count for so many hosts, or the
    #: name of a user's own planner; empty if there was no host, or a newer version took this one's place.
    planner: str
    plan: str
    #: A newer version took its place before it was sent.
    superseded: bool
    #: Versions that were superseded while this one was on its way.
    n_superseded: int
    #: Seconds from the first message until the last host was known to hold it, or, where that is waited for, until all
    #: actors were known to have applied it or were late; and what had been expected until hosts hold it.
    publish_s: float
    predicted_s: float
    #: The prediction is so many times the closed form, since versions by such plans have taken so long before.
    correction: float
    #: Host that was dropped, on the way or before, and is not back -> why.
    failed: dict[str, str]
    #: Host -> bytes that were given to it to send, repairs included; ``learner`` is this process.
    egress_bytes: dict[str, int]
    #: Host -> seconds from the version's first message until it was known to hold it; and from its own first byte to
    #: its last.
    publish_s_of: dict[str, float]
    arrival_s: dict[str, float]
    #: Where actors are waited for: how many there are; host -> seconds from the first message until all of its own were
    #: known to have applied it.
    n_actors: int
    applied_s_of: dict[str, float]
    #: Longest time for which an actor could not act because of a version: while it went on to it, its module was bound
    #: or its copy made.  Of this version where actors are waited for; else of the one that they had when it arrived.
    pause_s: float
    #: Host that was waited for no longer, and not dropped -> number of actors that had not applied the version; None if
    #: it has not said: it does not answer, or its readers hold every slot.
    late_actors: dict[str, int | None]
    #: All records from the version's first to its last.
    trace: tuple[Record, ...]
    #: The network as it was planned with, and where that comes from: measured, given or assumed.
    link: Link
    link_origin: str

    @property
    def models_per_s(self) -> float:
        """Versions per second, if the next left once this was confirmed (the distribution patent, paragraph 105)."""
        return 1.0 / self.publish_s if self.publish_s else 0.0

    def __str__(self) -> str:
        """Return what came of it in a line."""
        if self.superseded:
            return f"version {self.version} was not sent: a newer one took its place"
        lost = [f"{host} dropped: {why}" for host, why in self.failed.items()]
        if not self.n_hosts:
            return "; ".join([f"version {self.version} is on no host", *(lost or ["there is none"])])
        said = (
            f"version {self.version} by {self.plan} to {self.n_hosts} host{'s' * (self.n_hosts > 1)}, measured "
            f"{1e3 * self.publish_s:.3g} ms, predicted {1e3 * self.predicted_s:.3g} ms (network: {self.link_origin}"
        )
        said += f"; {self.correction:.2g} times the closed form, as before)" if self.correction != 1.0 else ")"
        sent = [f"the learner sent {self.egress_bytes['learner'] / self.n_bytes:.2f} models"]
        if self.kept_bytes:
            size = f"{self.sent_bytes / 1e6:.3g} of {self.n_bytes / 1e6:.3g} MB to each host"
            sent = [f"the learner sent {self.egress_bytes['learner'] / 1e6:.3g} MB, {size}, which kept the rest"]
        paused = f"paused for {1e3 * self.pause_s:.3g} ms at most"
        if self.n_actors:
            sent.append(f"{self.n_actors} actors {paused}")
        elif self.pause_s:
            sent.append(f"actors {paused} for the one before")
        return "; ".join([said, *sent, *lost])

    @classmethod
    def of(
        cls, version: int, trace: Sequence[Record], link: Link, link_origin: str, lost: Mapping[str, str]
    ) -> "PublishReport":
        """Return the report of the version that a trace is of; `lost` hosts had been dropped before."""
        own = [record for record in trace if getattr(record, "version", version) == version]
        held = {record.host: record for record in own if isinstance(record, words.HostCompleted)}
        installed = {record.host: record for record in own if isinstance(record, words.ActorsInstalled)}
        first = next((record for record in own if isinstance(record, words.DistributionPlanned)), None)
        end = next((record for record in own if isinstance(record, words.VersionPublished)), None)
        late = end.late if end else ()
        return cls(
            version=version,
            n_hosts=end.n_hosts if end else 0,
            n_bytes=first.n_bytes if first else 0,
            sent_bytes=first.n_bytes - first.kept_bytes if first else 0,
            kept_bytes=first.kept_bytes if first else 0,
            planner=first.planner if first else "",
            plan=(first.plan or first.planner) if first else "",
            superseded=end is None,
            n_superseded=sum(isinstance(record, words.VersionSuperseded) for record in trace) - (end is None),
            publish_s=end.publish_s if end else 0.0,
            predicted_s=first.predicted_s * first.correction if first else 0.0,
            correction=first.correction if first else 1.0,
            failed={**lost, **{record.host: record.reason for record in own if isinstance(record, words.HostDropped)}},
            egress_bytes=_egress([record for record in own if isinstance(record, words.SendParameters)]),
            publish_s_of={host: record.publish_s for host, record in held.items()},
            arrival_s={host: record.arrival_s for host, record in held.items()},
            n_actors=sum(record.n_actors for record in installed.values()),
            applied_s_of={host: record.publish_s for host, record in installed.items() if not record.n_late},
            pause_s=max((record.pause_s for record in (installed or held).values()), default=0.0),
            late_actors={host: installed[host].n_late if host in installed else None for host in late},
            trace=tuple(trace),
            link=link,
            link_origin=link_origin,
        )


def _egress(commands: Sequence[words.SendParameters]) -> dict[str, int]:
    egress = Counter({"learner": 0})
    for sent in commands:
        for start, stop, route in sent.sends:
            for sender, _ in sent.routes[route]:
                egress[(sent.source or "learner") if sender == LEARNER else sent.hosts[sender]] += stop - start
    return dict(egress)


class Publication:
    """A version on its way: wait for it with :meth:`result`, or `await` it."""

    def __init__(self, version: int) -> None:
        self.version = version
        #: What was recorded since it was asked for.
        self.trace: list[Record] = []
        self._future: Future[PublishReport] = Future()

    def result(self, timeout_s: float | None = None) -> PublishReport:
        """Return the report once the version is published.

        Raises
        ------
        TimeoutError
            If that takes longer than `timeout_s`; the version goes on.
        PeerError
            If the publisher was closed before.
        PlannerFailed
            If a planner of the user's own raised, or returned a plan that does not fit.
        """
        try:
            return self._future.result(timeout_s)
        except TimeoutError:
            raise TimeoutError(f"version {self.version} is still on its way after {timeout_s} s, and goes on") from None

    def done(self) -> bool:
        """Return whether it is over."""
        return self._future.done()

    def __await__(self) -> Generator[object, None, PublishReport]:
        """Wait for the report."""
        return asyncio.wrap_future(self._future).__await__()

    def end(self, report: PublishReport) -> None:
        """Hand the report over."""
        self._future.set_result(report)

    def fail(self, error: Exception) -> None:
        """Raise an error at whoever waits."""
        self._future.set_exception(error)
