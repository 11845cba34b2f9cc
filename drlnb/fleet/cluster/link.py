"""Connect to a cluster by a client, an address or a scheduler file; Dask is loaded when that is asked for."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from drlnb.fleet.cluster.cluster import Client
from drlnb.records.errors import ConfigError, InputError, PeerError

if TYPE_CHECKING:
    from drlnb.fleet.cluster.client_link import Link

__all__ = ["SchedulerUnreachable", "connect"]

#: Seconds for a first answer of a scheduler; the promise is a message within 15 s.
_CONNECT_S = 10.0


class SchedulerUnreachable(InputError, PeerError):
    """No scheduler answers at the address that was given."""


def connect(client: Client, *, pid: int = 0, timeout_s: float = _CONNECT_S) -> "Link":
    """Link to a cluster.

    Parameters
    ----------
    client
        Client, Cluster, address, or path of a scheduler file.  An asynchronous client is not used itself: a second
        one with a loop of its own is made beside it.
    pid
        Process of the scheduler if it is ours, else 0.
    timeout_s
        Longest wait for the scheduler.

    Raises
    ------
    ConfigError
        If it is something else, or the scheduler file cannot be read.
    SchedulerUnreachable
        If nothing answers in time.
    """
    wanted: dict[str, object] | None = None
    if isinstance(client, str | Path):
        wanted = _address_or_file(str(client))
    elif hasattr(client, "scheduler") and hasattr(client, "asynchronous") and hasattr(client, "submit"):
        if client.asynchronous:
            wanted = {"address": str(client.scheduler.address), "security": client.security}
    elif hasattr(client, "scheduler_address"):
        wanted = {"address": str(client.scheduler_address), "security": getattr(client, "security", None)}
    else:
        raise ConfigError(f"client must be a Client, a Cluster, an address or a scheduler file, got {client!r}")

    from drlnb.fleet.cluster.client_link import Link, dask_client

    if wanted is None:
        return Link(client, owned=False, pid=pid)
    where = str(client if isinstance(client, str | Path) else wanted["address"])
    try:
        with _Quiet():
            return Link(dask_client(wanted, timeout_s), owned=True, pid=pid)
    except (OSError, TimeoutError) as error:
        raise SchedulerUnreachable(
            where, f"no scheduler answers there within {timeout_s:g} s ({_first(error)})"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{where!r} is no scheduler's address: {_first(error)}") from None


def _address_or_file(text: str) -> dict[str, object]:
    if "://" not in text and (Path(text).is_file() or text.endswith(".json")):
        if not Path(text).is_file():
            raise ConfigError(f"there is no scheduler file {text}")
        return {"scheduler_file": text}
    if ":" not in text.removeprefix("tcp://").removeprefix("tls://"):
        raise ConfigError(f"{text!r} is no scheduler's address (host:port, tcp://host:port) and no scheduler file")
    return {"address": text}


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class _Quiet:
    """Keep Dask's client from logging what an exception reports a moment later."""

    #: Dask gives its client's logger a level of its own.
    _NAMES = ("distributed", "distributed.client")

    def __enter__(self) -> None:
        self._levels = {name: logging.getLogger(name).level for name in self._NAMES}
        for name in self._NAMES:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def __exit__(self, *error: object) -> None:
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
