"""Install drlnb on a cluster and call its broker, for a Client with a loop of its own."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import cloudpickle
from distributed import Client, fire_and_forget

from drlnb.records import errors
from drlnb.runtime.client import preflight
from drlnb.runtime.node.plugin import AgentPlugin
from drlnb.runtime.protocol import PROTOCOL, RPC_TIMEOUT_S, Plain, drlnb_version
from drlnb.runtime.scheduler.anchor_task import anchor
from drlnb.runtime.scheduler.plugin import BrokerPlugin
from drlnb.runtime.scheduler.user_leases import LoopsPlugin
from drlnb.runtime.seats.agent import SeatsAgentPlugin
from drlnb.runtime.seats.plugin import SeatsPlugin

__all__ = [
    "NodeRow",
    "Pool",
    "SlotRow",
    "control",
    "create_run",
    "install",
    "pool_rows",
    "probe_env",
    "restart",
    "rows",
    "runs",
    "submit_anchors",
]

_Row = TypeVar("_Row", "NodeRow", "SlotRow")

#: Longest wait for the agents of the workers to report, in seconds.
_AGENTS_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node agent."""

    node: str
    address: str
    host: str
    n_cpus: int


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

    epoch: int
    nodes: tuple[NodeRow, ...]
    slots: tuple[SlotRow, ...]
    #: Sentences to show prominently, once.
    notices: tuple[str, ...]
    #: CUDA devices, or virtual ones, that carry the slots.
    n_devices: int
    #: Slots of each device, or ``auto``.
    seats: int | str
    #: What its devices were named by; empty if they were not.
    names: tuple[str, ...] = ()
    #: Whether the tasks of a slot share a process (``shared``) or have one each (``process``).
    isolation: str = "shared"


def _ask(client: Client, op: str, *, timeout_s: float = RPC_TIMEOUT_S, **message: object) -> Any:
    """Call a handler of the broker and raise what it refuses.

    Raises
    ------
    PeerError
        If the scheduler does not answer, or drlnb is not installed on it.
    """

    async def go() -> object:
        return await asyncio.wait_for(getattr(client.scheduler, op)(**message), timeout_s)

    try:
        reply = client.sync(go)
    except (OSError, TimeoutError) as error:
        raise errors.PeerError("scheduler", f"{op} was not answered: {error or type(error).__name__}") from None
    if reply is None:
        raise errors.PeerError("scheduler", f"does not know {op}: drlnb is not installed on this cluster")
    if isinstance(reply, Mapping) and "error" in reply:
        kind = getattr(errors, str(reply["error"]), None)
        if kind is errors.PeerError or kind is None:
            raise errors.PeerError("scheduler", str(reply["message"]))
        raise kind(reply["message"])
    return reply


def _preflight(client: Client) -> None:
    """Refuse a cluster that lacks drlnb somewhere, before any plugin goes there."""
    cloudpickle.register_pickle_by_value(preflight)
    try:
        there = {"the scheduler": client.run_on_scheduler(preflight.look), **client.run(preflight.look)}
    finally:
        cloudpickle.unregister_pickle_by_value(preflight)
    mine = preflight.look()
    problems = []
    for where, versions in there.items():
        if versions["drlnb"] is None:
            problems.append(f"{where} has no drlnb; install it there with: pip install drlnb=={mine['drlnb']}")
        elif (versions["drlnb"], versions["python"]) != (mine["drlnb"], mine["python"]):
            theirs = f"drlnb {versions['drlnb']} on Python {versions['python']}"
            problems.append(f"{where} has {theirs}, this client drlnb {mine['drlnb']} on Python {mine['python']}")
        elif where != "the scheduler" and (versions["torch"] is None or versions["gymnasium"] is None):
            problems.append(f"{where} lacks torch or gymnasium")
    if problems:
        raise errors.ConfigError(problems)


def install(
    client: Client,
    *,
    n_slots: int | None,
    seats: int | str = 1,
    names: Sequence[str] = (),
    isolation: str = "shared",
    n_nodes: int = 1,
    settings: Mapping[str, object] | None = None,
    own_cluster: bool = False,
) -> Pool:
    """Put the broker and the agents onto a cluster (again: harmless) and open its slots.

    Parameters
    ----------
    client
        A connected client that is not asynchronous.
    n_slots
        CUDA devices, or virtual ones where there are none; ``None``: every device, or 2 virtual ones.
    seats
        Slots of each device: concurrent leases, each with an executor of its own; ``"auto"``: as many as pay.
    names
        The devices by name instead of `n_slots`, as :func:`drlnb.planning.placement.devices.named_devices` reads them.
    isolation
        Whether a slot's tasks share a process (``shared``) or have one each (``process``).
    n_nodes
        Agents to wait for.
    settings
        Settings of leasing for a broker that is not there yet.
    own_cluster
        Whether the cluster was started by drlnb.

    Raises
    ------
    ConfigError
        If drlnb is missing or another version somewhere, or there are fewer slots or seats than asked for.
    PeerError
        If the agents do not report in time.
    """
    if not own_cluster:
        _preflight(client)
    client.register_plugin(BrokerPlugin(settings))
    client.register_plugin(LoopsPlugin())
    client.register_plugin(AgentPlugin(own_cluster=own_cluster))
    if seats == "auto":
        client.register_plugin(SeatsPlugin())
        client.register_plugin(SeatsAgentPlugin())
    hello = _ask(client, "drlnb_hello", protocol=PROTOCOL)
    if (hello["protocol"], hello["version"]) != (PROTOCOL, drlnb_version()):
        raise errors.ConfigError(
            f"the cluster runs drlnb {hello['version']} (protocol {hello['protocol']}), "
            f"this client {drlnb_version()} (protocol {PROTOCOL})"
        )
    n_up = _wait_for_nodes(client, n_nodes)
    if n_up < n_nodes:
        raise errors.PeerError("cluster", f"{n_up} of {n_nodes} node agents reported in {_AGENTS_S:g} s")
    wanted = {"n_slots": n_slots, "seats": seats, "names": list(names), "isolation": isolation}
    _ask(client, "drlnb_open_slots", **wanted, timeout_s=30.0)
    return _pool(_ask(client, "drlnb_nodes"), hello["epoch"])


def _wait_for_nodes(client: Client, n_nodes: int) -> int:
    deadline = time.monotonic() + _AGENTS_S
    while True:
        n_up = len(_ask(client, "drlnb_nodes", at_least=n_nodes, wait_s=10.0)["nodes"])
        if n_up >= n_nodes or time.monotonic() > deadline:
            return n_up


def _pool(reply: Plain, epoch: int) -> Pool:
    return Pool(
        epoch=epoch,
        nodes=tuple(_row(NodeRow, row) for row in reply["nodes"]),
        slots=tuple(_row(SlotRow, row) for row in reply["slots"]),
        notices=tuple(reply["notices"]),
        names=tuple(reply["names"]),
        **{name: reply[name] for name in ("n_devices", "seats", "isolation")},
    )


def _row(kind: type[_Row], row: Plain) -> _Row:
    return kind(**{field.name: row[field.name] for field in fields(kind)})


def same_devices(client: Client, names: Sequence[str]) -> bool:
    """Return whether the devices of a pool that is open are those of some names.

    Raises
    ------
    ConfigError
        If a name means no device; the message lists what there is.
    """
    return bool(_ask(client, "drlnb_same_devices", names=list(names))["same"])


def probe_env(client: Client, env: str | Mapping[str, object]) -> Plain:
    """Have a node build an environment and describe its spaces.

    Raises
    ------
    EnvError
        If it cannot be built there; UnsupportedSpace if no policy can serve its spaces.
    """
    spaces: Plain = _ask(client, "drlnb_probe", env=env, timeout_s=90.0)["spaces"]
    return spaces


def create_run(client: Client, run: Mapping[str, object]) -> None:
    """Open a run on the cluster; the same id again is harmless.

    Raises
    ------
    RunLocked
        If another live run of this cluster uses the same directory.
    """
    _ask(client, "drlnb_run_create", run=run["run"], spec=dict(run))


def submit_anchors(client: Client, run_id: str, tasks: Sequence[str]) -> None:
    """Start the masters of a run; nothing of them is keyed by this client."""
    keys = _ask(client, "drlnb_run_anchors", run=run_id)
    for task in tasks:
        _submit_anchor(client, run_id, task, keys[task])


def _submit_anchor(client: Client, run_id: str, task: str, key: str) -> None:
    fire_and_forget(client.submit(anchor, run_id, task, key=key, pure=False, retries=0))


def restart(client: Client, run_id: str, task: str) -> int:
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
    reply = _ask(client, "drlnb_run_restart", run=run_id, task=task)
    _submit_anchor(client, run_id, task, reply["anchor"])
    return int(reply["attempt"])


def control(
    client: Client,
    run_id: str,
    action: str,
    *,
    task: str | None = None,
    key: str | None = None,
    value: object = None,
    reason: str = "",
) -> None:
    """Stop, kill, pause, resume, checkpoint or set something of a run."""
    _ask(client, "drlnb_run_control", run=run_id, action=action, task=task, key=key or "", value=value, reason=reason)


def set_pool(client: Client, key: str, value: object) -> None:
    """Change a setting of the pool.

    Raises
    ------
    ConfigError
        If the pool refuses it; nothing has been changed then.
    """
    _ask(client, "drlnb_pool_set", key=key, value=value)


def rows(client: Client, run_id: str, since: int, wait_s: float) -> tuple[int, list[Plain], bool]:
    """Return (number after the last row, rows from `since` on, whether some were missed); waits for the first one."""
    page = _ask(client, "drlnb_rows", run=run_id, since=since, wait_s=wait_s, timeout_s=wait_s + RPC_TIMEOUT_S)
    return int(page["next"]), list(page["rows"]), bool(page["gap"])


def pool_rows(client: Client) -> list[Plain]:
    """Return the rows of the pool's own stream that the scheduler still has, oldest first."""
    rows: list[Plain] = []
    since = 0
    while True:
        page = _ask(client, "drlnb_loop_rows", since=since)
        if not page["rows"]:
            return rows
        since = int(page["next"])
        rows += page["rows"]


def runs(client: Client) -> list[Plain]:
    """Return the runs that the cluster knows."""
    return list(_ask(client, "drlnb_runs"))
