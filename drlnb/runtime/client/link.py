"""Install drlnb on a cluster and call its broker, for a Dask client with a loop of its own."""

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import cloudpickle
from distributed import Client, fire_and_forget

from drlnb.records import errors
from drlnb.runtime.files import versions
from drlnb.runtime.files.run_directory import Lock
from drlnb.runtime.node.plugin import AgentPlugin
from drlnb.runtime.protocol import PROTOCOL, RPC_TIMEOUT_S, Plain, drlnb_version
from drlnb.runtime.scheduler.anchors import anchor
from drlnb.runtime.scheduler.plugin import BrokerPlugin
from drlnb.runtime.seats.plugin import SeatsPlugin

__all__ = ["Link", "Pool", "SlotRow"]

#: Longest wait for the agents of the workers to report, in seconds.
_AGENTS_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """One slot of the pool."""

    slot: str
    node: str
    #: ``cuda:<uuid>``, or ``cpu`` for a virtual slot (``cpu:K`` with several seats).
    device: str
    #: Whether its executor is up.
    up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What a cluster offers."""

    #: Node agents.
    n_nodes: int
    slots: tuple[SlotRow, ...]
    #: Sentences to show prominently, once.
    notices: tuple[str, ...]
    #: CUDA devices, or virtual ones, that carry the slots.
    n_devices: int
    #: Slots of each device, or ``auto``.
    seats: int | str
    #: What its devices were named by; empty if they were not.
    names: tuple[str, ...]
    #: Whether the tasks of a slot share a process (``shared``) or have one each (``process``).
    isolation: str


class Link:
    """All that a fleet needs of its cluster, so that a test can put another one in its place.

    Parameters
    ----------
    client
        A connected client that is not asynchronous: it has a loop thread of its own.
    owned
        Whether it is closed with the link.
    pid
        Process of the scheduler if it is ours, else 0.
    """

    def __init__(self, client: Client, *, owned: bool = False, pid: int = 0) -> None:
        self.client = client
        self.address = str(client.scheduler.address)
        self._owned = owned
        self._pid = pid
        self._epoch = 0

    def _ask(self, op: str, *, timeout_s: float = RPC_TIMEOUT_S, **message: object) -> Any:
        """Call a handler of the broker and raise what it refuses.

        Raises
        ------
        PeerError
            If the scheduler does not answer or is gone, or drlnb is not installed on it.
        """

        async def go() -> object:
            return await asyncio.wait_for(getattr(self.client.scheduler, op)(**message), timeout_s)

        if self.client.status != "running":
            raise errors.PeerError("scheduler", "no connection")
        try:
            reply = self.client.sync(go)
        except (OSError, TimeoutError) as error:
            raise errors.PeerError("scheduler", f"{op} was not answered: {error or type(error).__name__}") from None
        except AttributeError:
            if self.client.scheduler is not None:
                raise
            # Dask's client loses its parts one by one where the scheduler is gone.
            raise errors.PeerError("scheduler", "no connection") from None
        if reply is None:
            raise errors.PeerError("scheduler", f"does not know {op}: drlnb is not installed on this cluster")
        if isinstance(reply, Mapping) and "error" in reply:
            kind = getattr(errors, str(reply["error"]), None)
            if kind is errors.PeerError or kind is None:
                raise errors.PeerError("scheduler", str(reply["message"]))
            raise kind(reply["message"])
        return reply

    # ------------------------------------------------------------------ the pool
    def open_pool(
        self,
        n_slots: int | None,
        *,
        seats: int | str = 1,
        names: Sequence[str] = (),
        isolation: str = "shared",
        own_workers: int | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> Pool:
        """Put the broker and the agents onto the cluster (again: harmless) and open its slots.

        Parameters
        ----------
        n_slots
            How many devices; None: every CUDA device, or 2 virtual ones.
        seats
            Slots of each device: concurrent leases, each with an executor of its own; ``"auto"``: as many as pay.
        names
            The devices by name instead of `n_slots`, as :func:`drlnb.planning.placement.devices.named_devices` reads
            them.
        isolation
            Whether a slot's tasks share a process (``shared``) or have one each (``process``).
        own_workers
            Workers of a cluster of our own, None on another one.
        settings
            Settings of leasing for a broker that is not there yet.

        Raises
        ------
        ConfigError
            If drlnb is missing or another version somewhere, or there are fewer slots or seats than asked for.
        PeerError
            If the agents do not report in time.
        """
        if own_workers is None:
            self._preflight()
        plugins = [BrokerPlugin(settings), AgentPlugin(own_cluster=own_workers is not None)]
        if seats == "auto":
            plugins.append(SeatsPlugin())
        for plugin in plugins:
            self.client.register_plugin(plugin)
        self._epoch = self._hello()
        self._wait_for_nodes(own_workers or max(1, len(self.client.ncores())))
        wanted = {"n_slots": n_slots, "seats": seats, "names": list(names), "isolation": isolation}
        self._ask("drlnb_open_slots", **wanted, timeout_s=30.0)
        reply = self._ask("drlnb_nodes")
        slot_fields = [field.name for field in fields(SlotRow)]
        return Pool(
            n_nodes=len(reply["nodes"]),
            slots=tuple(SlotRow(**{name: row[name] for name in slot_fields}) for row in reply["slots"]),
            notices=tuple(reply["notices"]),
            names=tuple(reply["names"]),
            **{name: reply[name] for name in ("n_devices", "seats", "isolation")},
        )

    def _hello(self) -> int:
        """Return the broker's epoch; refuse a broker of another version."""
        hello = self._ask("drlnb_hello", protocol=PROTOCOL)
        if (hello["protocol"], hello["version"]) != (PROTOCOL, drlnb_version()):
            raise errors.ConfigError(
                f"the cluster runs drlnb {hello['version']} (protocol {hello['protocol']}), "
                f"this client {drlnb_version()} (protocol {PROTOCOL})"
            )
        return int(hello["epoch"])

    def _preflight(self) -> None:
        """Refuse a cluster that lacks drlnb somewhere: a plugin there would stay, and kill every later worker."""
        cloudpickle.register_pickle_by_value(versions)
        try:
            there = self.client.run(versions.versions)
            there = {"the scheduler": self.client.run_on_scheduler(versions.versions), **there}
        finally:
            cloudpickle.unregister_pickle_by_value(versions)
        mine = _shown(versions.versions())
        problems = []
        for where, theirs in there.items():
            if theirs["drlnb"] == versions.MISSING:
                problems.append(f"{where} has no drlnb; install it there with: pip install drlnb=={drlnb_version()}")
            elif _shown(theirs) != mine:
                problems.append(f"{where} has {_shown(theirs)}, this client {mine}")
            elif where != "the scheduler" and versions.MISSING in (theirs["torch"], theirs["gymnasium"]):
                problems.append(f"{where} lacks torch or gymnasium")
        if problems:
            raise errors.ConfigError(problems)

    def _wait_for_nodes(self, n_nodes: int) -> None:
        deadline = time.monotonic() + _AGENTS_S
        while (n_up := len(self._ask("drlnb_nodes", at_least=n_nodes, wait_s=10.0)["nodes"])) < n_nodes:
            if time.monotonic() > deadline:
                raise errors.PeerError("cluster", f"{n_up} of {n_nodes} node agents reported in {_AGENTS_S:g} s")

    def same_devices(self, names: Sequence[str]) -> bool:
        """Return whether the pool's devices are those of some names; raise ConfigError for names that mean none."""
        return bool(self._ask("drlnb_same_devices", names=list(names))["same"])

    def set_pool(self, key: str, value: object) -> None:
        """Change a setting of the pool; raise ConfigError, and change nothing, if the pool refuses it."""
        self._ask("drlnb_pool_set", key=key, value=value)

    def pool_rows(self) -> list[Plain]:
        """Return the rows of the pool's own stream that the scheduler still has, oldest first."""
        rows: list[Plain] = []
        page: Plain = {"next": 0}
        while (page := self._ask("drlnb_loop_rows", since=int(page["next"])))["rows"]:
            rows += page["rows"]
        return rows

    # ------------------------------------------------------------------ runs
    def probe_env(self, env: str | Plain) -> Plain:
        """Return the spaces of an environment, as a node of the cluster sees them.

        Raises
        ------
        EnvError
            If it cannot be built there; UnsupportedSpace if no policy can serve its spaces.
        """
        spaces: Plain = self._ask("drlnb_probe", env=env, timeout_s=90.0)["spaces"]
        return spaces

    def create_run(self, run: Mapping[str, object]) -> None:
        """Open a run on the cluster; the same id again is harmless.

        Raises
        ------
        RunLocked
            If another live run of this cluster uses the same directory.
        """
        self._ask("drlnb_run_create", run=run["run"], spec=dict(run))

    def submit_anchors(self, run_id: str, tasks: Sequence[str]) -> None:
        """Start the masters of a run's tasks; nothing of them is keyed by this client."""
        keys = self._ask("drlnb_run_anchors", run=run_id)
        for task in tasks:
            self._submit_anchor(run_id, task, keys[task])

    def _submit_anchor(self, run_id: str, task: str, key: str) -> None:
        fire_and_forget(self.client.submit(anchor, run_id, task, key=key, pure=False, retries=0))

    def restart(self, run_id: str, task: str) -> int:
        """Start a task again that failed or was stopped, from its newest checkpoint; return its new attempt's number.

        Raises
        ------
        ConfigError
            If it has not failed and was not stopped.
        RunLocked
            If another live run of this cluster uses the same directory.
        PeerError
            If the cluster does not know the run any more.
        """
        reply = self._ask("drlnb_run_restart", run=run_id, task=task)
        self._submit_anchor(run_id, task, reply["anchor"])
        return int(reply["attempt"])

    def control(self, run_id: str, action: str, *, task: str | None = None, reason: str = "") -> None:
        """Stop, kill, pause, resume or checkpoint."""
        self._ask("drlnb_run_control", run=run_id, action=action, task=task, reason=reason)

    def set(self, run_id: str, key: str, value: object, *, task: str | None = None) -> None:
        """Change a setting of a run's tasks."""
        self._ask("drlnb_run_control", run=run_id, action="set", task=task, key=key, value=value)

    def check(self, run_id: str, key: str, value: object, *, task: str | None = None) -> None:
        """Raise what :meth:`set` would, and change nothing."""
        self._ask("drlnb_run_control", run=run_id, action="check", task=task, key=key, value=value)

    def rows(self, run_id: str, since: int, wait_s: float) -> tuple[int, list[Plain], bool]:
        """Return (number after the last row, rows from `since` on, whether some were missed); wait for the first."""
        page = self._ask("drlnb_rows", run=run_id, since=since, wait_s=wait_s, timeout_s=wait_s + RPC_TIMEOUT_S)
        return int(page["next"]), list(page["rows"]), bool(page["gap"])

    def runs(self) -> list[Plain]:
        """Return the runs that the cluster knows."""
        return list(self._ask("drlnb_runs"))

    # ------------------------------------------------------------------ the link itself
    def lock(self, run_id: str) -> Lock:
        """Return the lock of a run directory whose run this cluster runs."""
        host = socket.gethostname() if self._pid else ""
        return Lock(run=run_id, epoch=self._epoch, address=self.address, pid=self._pid, host=host)

    def close(self) -> None:
        """Hang up; the cluster goes on."""
        if self._owned:
            self.client.close()


def _shown(installed: Mapping[str, str]) -> str:
    """Return the versions that must be the same everywhere."""
    return f"drlnb {installed['drlnb']} on Python {installed['python'].rpartition('.')[0]}"
