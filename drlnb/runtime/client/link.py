"""Install drlnb on a cluster and call its broker, for a Dask client with a loop of its own."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import cloudpickle
from distributed import Client
from distributed.protocol.pickle import dumps

from drlnb.planning.round.state import ENV_TIMEOUT_S
from drlnb.records import errors
from drlnb.runtime.files import versions
from drlnb.runtime.files.lock import Lock
from drlnb.runtime.node.bootstrap import Bootstrap, by_value
from drlnb.runtime.protocol import AGENT, PROTOCOL, RPC_TIMEOUT_S, Plain, drlnb_version, probe_patience_s
from drlnb.runtime.scheduler.anchors import submit_anchor
from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["Link", "Pool", "SlotRow"]

#: What to do where a module is missing.
_OWN_MODULES = "its folder must be on sys.path before drlnb.Fleet() starts the cluster"
_FOREIGN_MODULES = (
    "the cluster's nodes do not have it: install it there, or send its file with client.upload_file('NAME.py')"
)
#: Longest wait for the agents of the workers to report; and for the others' once one has, in seconds.
_AGENTS_S, _LATE_S = 60.0, 15.0
#: Longest wait for the first worker of a cluster that scales, and for plugins to be taken on, in seconds.
_SCALE_S, _PLUGIN_S = 600.0, 15.0


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
    #: Slots of each device.
    seats: int
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
    say
        Takes a sentence for the user.
    """

    def __init__(
        self, client: Client, *, owned: bool = False, say: Callable[[str], object] = lambda text: None
    ) -> None:
        self.client = client
        self.address = str(client.scheduler.address)
        self._owned = owned
        self._say = say
        #: Whether the cluster is one of our own.
        self._is_ours = False
        #: What the broker says of itself, once it is there.
        self._broker: Plain = {"epoch": 0}
        #: Name of the fleet that this link serves, and whether the broker counts it.
        self._fleet, self._fleet_open = uuid.uuid4().hex, False

    def _call(self, op: str, *, timeout_s: float | None = RPC_TIMEOUT_S, **message: object) -> Any:
        """Call a handler of the scheduler, Dask's own ones included.

        Raises
        ------
        PeerError
            If the scheduler does not answer in time, or is gone.
        """

        async def go() -> object:
            return await asyncio.wait_for(getattr(self.client.scheduler, op)(**message), timeout_s)

        if self.client.status != "running":
            raise errors.PeerError("scheduler", "no connection")
        try:
            return self.client.sync(go)
        except (OSError, TimeoutError) as error:
            raise errors.PeerError("scheduler", f"{op} was not answered: {error or type(error).__name__}") from None
        except AttributeError:
            if self.client.scheduler is not None:
                raise
            # Dask's client loses its parts one by one where the scheduler is gone.
            raise errors.PeerError("scheduler", "no connection") from None

    def _ask(self, op: str, *, timeout_s: float | None = RPC_TIMEOUT_S, **message: object) -> Any:
        """Call a handler of the broker and raise what it refuses.

        Raises
        ------
        PeerError
            If the scheduler does not answer or is gone, or drlnb is not installed on it.
        """
        reply = self._call(op, timeout_s=timeout_s, **message)
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
        seats: int = 1,
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
            Slots of each device: concurrent leases, each with an executor of its own.
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
        self._is_ours = own_workers is not None
        self._install(settings, own_cluster=self._is_ours)
        silent = self._wait_for_nodes(own_workers)
        wanted = {"n_slots": n_slots, "seats": seats, "names": list(names), "isolation": isolation}
        self._ask("drlnb_open_slots", **wanted, timeout_s=30.0)
        reply = self._ask("drlnb_nodes")
        slot_fields = [field.name for field in fields(SlotRow)]
        return Pool(
            n_nodes=len(reply["nodes"]),
            slots=tuple(SlotRow(**{name: row[name] for name in slot_fields}) for row in reply["slots"]),
            notices=(*reply["notices"], *silent),
            names=tuple(reply["names"]),
            **{name: reply[name] for name in ("n_devices", "seats", "isolation")},
        )

    def _install(self, settings: Mapping[str, object] | None, *, own_cluster: bool) -> None:
        """Put the broker onto the scheduler, and the agents onto the workers that are there and that come."""
        if not own_cluster:
            self._check_scheduler()
        broker = {"plugin": cloudpickle.dumps(BrokerPlugin(settings)), "name": BrokerPlugin.name, "idempotent": True}
        fleet = {"fleet": self._fleet, "client": self.client.id} if not own_cluster else {}
        while True:
            self._call("register_scheduler_plugin", **broker, timeout_s=_PLUGIN_S)
            if self._hello(**fleet):
                break  # else: that broker was leaving with its last fleet, and has left
        kind = "drlnb.runtime.node.plugin:AgentPlugin"
        agent = Bootstrap(AGENT, versions.versions(), kind, own_cluster=own_cluster)
        with contextlib.suppress(errors.PeerError):  # a worker that does not answer is named below
            packed = {"plugin": by_value(agent), "name": AGENT, "idempotent": True}
            self._call("register_worker_plugin", **packed, timeout_s=_PLUGIN_S)

    def notices(self) -> tuple[str, ...]:
        """Return what is to be said of the pool now: also of workers that came since and cannot be used."""
        return tuple(self._ask("drlnb_nodes")["notices"])

    def _hello(self, **fleet: str) -> bool:
        """Greet the broker; false if it is leaving.  Refuse one of another version."""
        hello = self._ask("drlnb_hello", protocol=PROTOCOL, **fleet, timeout_s=30.0)
        if (hello["protocol"], hello["version"]) != (PROTOCOL, drlnb_version()):
            raise errors.ConfigError(
                f"the cluster runs drlnb {hello['version']} (protocol {hello['protocol']}), "
                f"this client {drlnb_version()} (protocol {PROTOCOL})"
            )
        self._broker, self._fleet_open = dict(hello), bool(fleet)
        return not hello["leaving"]

    def _check_scheduler(self) -> None:
        """Refuse a cluster whose scheduler lacks drlnb: it could not even take the broker."""
        packed = {"function": by_value(versions.versions), "args": dumps(()), "kwargs": dumps({})}
        reply = self._call("run_function", **packed)
        theirs = reply["result"] if reply["status"] == "OK" else {"drlnb": versions.MISSING}
        if problem := versions.problem(theirs, versions.versions(), computes=False):
            raise errors.ConfigError(f"the scheduler {problem}")

    def _wait_for_nodes(self, n_own: int | None) -> list[str]:
        """Wait for the agents: of an own cluster all; else until each worker has one, says why not, or is silent.

        Returns
        -------
        list of str
            A sentence on each worker that does not answer.

        Raises
        ------
        ConfigError
            If no worker can be used.
        PeerError
            If none reports in time.
        """
        began_s = late_s = time.monotonic()
        wish = None
        while True:
            there = self._call("ncores")
            if not there and wish is None:
                self._say(f"no worker is there yet: waiting up to {_SCALE_S:g} s for the cluster to scale")
                # What adaptive scaling sees.
                wish = self.client.submit(int, key=f"drlnb-wish-{self._fleet}", pure=False)
            reply = self._ask("drlnb_nodes", at_least=n_own or len(there) or 1, wait_s=1.0)
            up, unused = {row["address"] for row in reply["nodes"]}, reply["unused"]
            silent = [address for address in there if address not in up and address not in unused]
            now_s = time.monotonic()
            late_s = late_s if up else now_s
            if len(up) >= n_own if n_own else up and (not silent or now_s - late_s > _LATE_S):
                return [f"worker {address} does not answer: it is not used" for address in silent]
            if there and not silent and not up:
                raise errors.ConfigError([f"worker {address} {why}" for address, why in unused.items()])
            if now_s - began_s > (_AGENTS_S if there else _SCALE_S):
                who = f"; no word from {', '.join(silent)}" if silent else "; no worker came: scale the cluster"
                raise errors.PeerError(
                    "cluster", f"{len(up)} of {n_own or len(there)} node agents reported in time{who}"
                )

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
    def probe_env(self, env: str | Plain, env_timeout_s: float | None = ENV_TIMEOUT_S) -> Plain:
        """Return the spaces of an environment, as a node of the cluster sees them.

        Parameters
        ----------
        env
            As of :func:`drlnb.rl.envs.make.make_env`.
        env_timeout_s
            Seconds that it may take to be built and tried; None: all time.

        Raises
        ------
        EnvError
            If it cannot be built there; UnsupportedSpace if no policy can serve its spaces.
        """
        patience_s = probe_patience_s(env_timeout_s, 2.0 * RPC_TIMEOUT_S)
        try:
            reply = self._ask("drlnb_probe", env=env, env_timeout_s=env_timeout_s, timeout_s=patience_s)
        except errors.EnvError as error:
            if "o module named" not in str(error):
                raise
            hint = _OWN_MODULES if self._is_ours else _FOREIGN_MODULES
            raise type(error)(f"{error}; {hint}") from None
        spaces: Plain = reply["spaces"]
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
        there = self._ask("drlnb_nodes")
        addresses = [row["address"] for row in there["nodes"]] if there["unused"] else ()
        submit_anchor(self.client, run_id, task, key, addresses)

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

    def slow_down(self, run_id: str, task: str, member: str, factor: float, n_rounds: int) -> None:
        """Have a member of a task take longer on purpose."""
        value = {"factor": factor, "n_rounds": n_rounds}
        self._ask("drlnb_run_control", run=run_id, action="slow", task=task, key=member, value=value)

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
        known = {name: self._broker[name] for name in ("epoch", "pid", "host", "boot") if name in self._broker}
        return Lock(run=run_id, address=self.address, **known)

    def close(self) -> None:
        """Hang up; the cluster goes on.  With its last fleet drlnb leaves it, unless a run goes on."""
        if self._fleet_open:
            self._fleet_open = False
            with contextlib.suppress(errors.PeerError):
                self._ask("drlnb_goodbye", fleet=self._fleet)
        if self._owned:
            self.client.close()
