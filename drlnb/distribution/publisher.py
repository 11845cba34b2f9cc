"""Publish the parameters of any module to the hosts of a Dask cluster, one version after another.

The process that publishes is the learner: it sends to the workers itself, by Dask's own connections, and hears of them
by a topic of Dask's events, so it needs no server and no port.
"""

import asyncio
import math
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

from distributed import Client

from drlnb.distribution.cluster import TopicClient, close_idle, install
from drlnb.distribution.flat import pack
from drlnb.distribution.publication import Publication, PublishReport
from drlnb.planning.distribution import DISTRIBUTION, PRESETS, Link
from drlnb.planning.distribution.machine import DistributionMachine
from drlnb.planning.registry import AnyPlanner, PlannerFailed, Planners
from drlnb.records.attributes import fixed
from drlnb.records.base import Record
from drlnb.records.columns import distribution as words
from drlnb.records.errors import ConfigError, PeerError
from drlnb.runtime.client.plugins import PLUGIN_S, uninstall, usable
from drlnb.runtime.distribution.probe import WITHIN_S
from drlnb.runtime.distribution.relay import HostRelay
from drlnb.runtime.distribution.sender import Sender
from drlnb.runtime.files.planners import resolve
from drlnb.runtime.link import TOPIC
from drlnb.runtime.machine_host import MachineHost, by_class
from drlnb.runtime.protocol import Payload, Plain

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["Publisher"]

#: Longest wait for the first words of the workers, in seconds.
_UP_S = 15.0


@fixed("link", "link_origin")
class Publisher:
    """Publishes parameters to the workers of a Dask cluster.

    Parameters
    ----------
    client
        A client with a loop thread of its own; None: Dask's current one.
    task
        Name by which readers find the parameters: ``drlnb.distribution.HostView.attach(task=...)``.  Whoever publishes
        under the same name later takes it over.
    plan
        How a version reaches the hosts: the name of a planner, such as ``auto`` or ``relay:m=4``, one of your own, or
        its class; may be changed later.
    deadline_s
        Seconds after which hosts that have not got all of a version are asked what they miss; None: four times the
        prediction, and 5 s at least.
    link
        The network; None: it is measured before the first version, and again once there is more than one host; as far
        as it cannot be measured, it is taken for 10 Gbit/s Ethernet.
    confirm
        When a version is published: ``hosts``, once every host holds it; ``actors``, once on every host the actors that
        are attached have applied it (the distribution patent, paragraph 105), waited for until the version's deadline.

    Raises
    ------
    ConfigError
        If there is no plan or level of confirmation of the name, or the client cannot be used.
    PeerError
        If no answer comes from the scheduler.

    References
    ----------
    The distribution patent; paragraph 72: processes by a distributed engine, bytes by a fast path beside it.
    """

    task: str
    #: The network that the next version is planned with; and where it comes from, in a word or two.
    link: Link
    link_origin: str
    #: Host -> why it is not used.
    unused: dict[str, str]

    def __init__(
        self,
        client: Client | None = None,
        *,
        task: str = "parameters",
        plan: str | AnyPlanner | type = "auto",
        deadline_s: float | None = None,
        link: Link | None = None,
        confirm: str = "hosts",
    ) -> None:
        self._client = usable(client, "Publisher(distributed.Client(...))")
        if not isinstance(task, str) or not task or "/" in task:
            raise ConfigError(f"task must be a name without '/', got {task!r}")
        if deadline_s is not None and not (isinstance(deadline_s, (int, float)) and 0.0 < deadline_s < math.inf):
            raise ConfigError(f"deadline_s must be > 0, got {deadline_s!r}")
        if link is not None and not isinstance(link, Link):
            raise ConfigError(f"link must be a Link, got {link!r}")
        if confirm not in ("hosts", "actors"):
            raise ConfigError(f"confirm must be 'hosts' or 'actors', got {confirm!r}")
        self.task, self._planners = task, Planners()
        self.plan = plan
        config: Plain = {"planner": self.plan, "deadline_s": deadline_s, "confirm": confirm}
        self.link_origin = "given" if link is not None else "assumed, 10 Gbit/s Ethernet"
        if link is not None:
            config["link"] = asdict(link)
        self.link = link or PRESETS["10GbE"]
        #: A publisher that is made later has a higher number.
        self._attempt = time.time_ns()
        self._plugin = f"drlnb-relay-{uuid.uuid4().hex}"
        self._topic = f"{TOPIC}{self._plugin}"
        self._addresses: dict[str, str] = {}
        #: Host that was dropped, and may answer again -> its address, and why it was.
        self._dropped: dict[str, tuple[str, str]] = {}
        #: Those that are being asked.
        self._asked = set[str]()
        #: Address -> why there is no relay.
        self.unused: dict[str, str] = {}
        self._version, self._payloads = 0, dict[int, Payload]()
        #: The version that is sent.
        self._sent: Payload = b""
        self._waiting: dict[int, Publication] = {}
        self._is_open = self._is_closed = False
        #: Who has published later under the same name.
        self._successor = ""
        #: What measures the network, or has measured it last.
        self._measuring = list[asyncio.Task[None]]()
        self._call(self._open(config), PLUGIN_S + _UP_S + WITHIN_S)

    def _call(self, coroutine: object, timeout_s: float) -> None:
        """Run something in the client's loop."""
        future: Future[object] = asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)  # type: ignore[arg-type]
        try:
            future.result(timeout_s)
        except (OSError, TimeoutError) as error:
            future.cancel()
            raise PeerError("scheduler", str(error) or "it does not answer") from None

    # ------------------------------------------------------------------ hosts
    async def _open(self, config: Plain) -> None:
        """Put the plugin onto the workers that are there and that come, and wait until each has said something."""
        self._link = HostRelay.speaker(TopicClient(self._client, self._topic))
        self._sender = Sender(
            self._link,
            ("", self.task),
            self._attempt,
            lambda: self._sent,
            lambda: self._addresses,
            lambda kind, **values: self._host.feed(kind, **values),
        )
        effects = by_class({
            words.SendParameters: self._send,
            words.AskMissing: self._sender.ask,
            words.MeasureLink: self._measure,
        })
        self._host = MachineHost(DistributionMachine(config, self._planners), effects, [self._listen])
        self._changed = asyncio.Event()
        self._client.subscribe_topic(self._topic, self._heard)
        taken = await install(self._client, self._plugin, self._topic, task=self.task, attempt=self._attempt)
        for event in await self._client.scheduler.events(topic=self._topic):  # of before the subscription was heard
            self._heard(event)
        end = asyncio.get_running_loop().time() + _UP_S
        while set(taken) - set(self._addresses.values()) - self.unused.keys():
            self._changed.clear()
            left_s = end - asyncio.get_running_loop().time()
            if left_s <= 0.0:
                break
            await asyncio.wait([asyncio.ensure_future(self._changed.wait())], timeout=left_s)
        self._is_open = True
        self._tell()
        await asyncio.gather(*self._measuring)

    def _heard(self, event: tuple[float, Plain]) -> None:
        """Pass on what a worker says."""
        op, message = event[1]["op"], event[1]["fields"]
        if op == "drlnb_up":
            self._up(**message)
        elif op == "drlnb_down":
            self._down(**message)
        elif op == "drlnb_worker_unused":
            self.unused[message["address"]] = message["why"]
        elif message["attempt"] == self._attempt:
            about = {key: value for key, value in message.items() if key not in {"run", "task", "attempt"}}
            if op == "drlnb_taken":
                self._taken(**about)
            else:
                self._sender.heard(op.removeprefix("drlnb_"), about)
        self._changed.set()

    def _up(self, host: str, address: str) -> None:
        if self._addresses.pop(host, address) != address:
            self._tell()  # its process is another one, which holds nothing
        self._addresses[host] = address
        self._dropped.pop(host, None)
        self._tell()

    def _down(self, address: str) -> None:
        """Wait for nothing of a worker that Dask has removed."""
        if not self._is_open:
            self.unused.setdefault(address, "it is gone")
        self._addresses = {host: at for host, at in self._addresses.items() if at != address}
        self._dropped = {host: lost for host, lost in self._dropped.items() if lost[0] != address}
        self._sender.forget(address)
        self._tell()

    def _taken(self, by: str) -> None:
        """End: no host takes anything from here any more."""
        self._successor = self._successor or by
        waiting, self._waiting = self._waiting, {}
        for publication in waiting.values():
            publication.fail(self._over())
        self._addresses = {}
        self._tell()

    def _over(self) -> PeerError:
        return PeerError("publisher", f"{self._successor}, has published {self.task!r} since: open a new Publisher")

    def _tell(self) -> None:
        if self._is_open:  # before, those that are there are awaited
            self._host.feed(words.HostsChanged, hosts=tuple(self._addresses))

    def _measure(self, command: words.MeasureLink) -> None:
        self._measuring = [self._link.keep(self._sender.measure(command))]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the workers that get what is published; one that was dropped is not among them."""
        return tuple(self._addresses)

    # ------------------------------------------------------------------ versions
    @property
    def plan(self) -> str:
        """Name of the planner; a new one, given as to the publisher, takes effect at the next version."""
        return self._plan

    @plan.setter
    def plan(self, plan: str | AnyPlanner | type) -> None:
        try:
            planner = resolve(DISTRIBUTION, plan)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._plan = planner if isinstance(planner, str) else self._planners.add(DISTRIBUTION.decision, planner)

    def publish(self, source: "torch.nn.Module | Mapping[str, torch.Tensor | np.ndarray]") -> "Publication":
        """Pack a version and send it to all hosts; returns at once, and `source` may change again.

        While a version is on its way the next one waits, and a still newer one takes its place.

        Parameters
        ----------
        source
            As of :func:`drlnb.distribution.flat.pack`.

        Raises
        ------
        ValueError
            If it cannot be packed.
        RuntimeError
            If the publisher is closed, or its client.
        PeerError
            If another publisher has taken the name over.
        """
        payload = pack(source).data
        if self._successor:
            raise self._over()
        if self._is_closed or self._client.status != "running":
            raise RuntimeError("the publisher is closed" if self._is_closed else "the publisher's client is closed")
        self._version += 1
        publication = Publication(self._version)
        self._client.loop.asyncio_loop.call_soon_threadsafe(self._ask, publication, payload, self._plan)
        return publication

    def _ask(self, publication: "Publication", payload: Payload, plan: str) -> None:
        if self._is_closed:  # by another thread, meanwhile
            publication.fail(_closed())
            return
        self._payloads[publication.version] = payload
        self._waiting[publication.version] = publication
        base, changed = self._sender.changes(payload)
        what = {"version": publication.version, "n_bytes": len(payload), "planner": plan}
        self._host.feed(words.PublishAsked, **what, base=base, changed=changed)
        self._link.keep(self._ask_back())

    async def _ask_back(self) -> None:
        """Ask hosts that were dropped whether they answer again; forget those whose workers Dask has no more."""
        asked = {host: address for host, (address, _) in self._dropped.items() if host not in self._asked}
        if not asked:
            return
        self._asked |= asked.keys()
        try:
            workers = await self._client.scheduler.ncores()
            answers = await asyncio.gather(*[self._sender.answers(address) for address in asked.values()])
        except OSError:  # the scheduler does not answer
            return
        finally:
            self._asked -= asked.keys()
        for (host, address), is_back in zip(asked.items(), answers, strict=True):
            if is_back and host in self._dropped:
                self._up(host, address)
            elif address not in workers:
                self._dropped.pop(host, None)

    def _send(self, command: words.SendParameters) -> None:
        """Send a version, and forget those before it."""
        self._sent = self._payloads[command.version]
        self._payloads = {version: kept for version, kept in self._payloads.items() if version >= command.version}
        self._sender.send(command)

    def _listen(self, record: Record) -> None:
        """Keep what is said of the versions under way, and hand over the reports of those that are over."""
        for publication in self._waiting.values():
            publication.trace.append(record)
        if isinstance(record, words.LinkMeasured) and record.figures:
            self.link = Link.from_mapping(asdict(self.link) | dict(record.figures))
            assumed = [name for name in Link.declared() if name not in record.figures]
            self.link_origin = f"measured, but for {', '.join(assumed)}" if assumed else "measured"
        if isinstance(record, words.HostDropped) and record.host in self._addresses:
            self._dropped[record.host] = self._addresses.pop(record.host), record.reason
        if not isinstance(record, (words.VersionPublished, words.VersionSuperseded, words.VersionFailed)):
            return
        ended, lost = self._waiting.pop(record.version, None), {host: why for host, (_, why) in self._dropped.items()}
        if ended and isinstance(record, words.VersionFailed):
            ended.fail(PlannerFailed(record.reason))
        elif ended:
            ended.end(PublishReport.of(record.version, ended.trace, self.link, self.link_origin, lost))
        if self._waiting:  # the next version may find no host
            self._link.keep(self._ask_back())

    # ------------------------------------------------------------------ the end
    def close(self) -> None:
        """Send nothing more, and give the memory on the hosts back."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._client.status == "running":
                self._call(self._close(), PLUGIN_S)
        finally:
            for publication in self._waiting.values():
                publication.fail(_closed())

    async def _close(self) -> None:
        self._sender.close()
        await self._host.close()
        await self._link.close()
        await uninstall(self._client, self._plugin, self._topic)
        close_idle(self._client)

    def __enter__(self) -> Self:
        """Return the publisher."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _closed() -> PeerError:
    return PeerError("publisher", "it was closed before all hosts held the version")
