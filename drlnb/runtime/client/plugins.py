"""Put plugins of ours onto the workers of a Dask cluster, and remove them again."""

import asyncio
import contextlib

from distributed import Client

from drlnb.records.errors import ConfigError
from drlnb.runtime.node.bootstrap import Bootstrap, Removals, by_value

__all__ = ["PLUGIN_S", "install", "uninstall", "usable"]

#: Longest wait for the workers to take a plugin, in seconds.
PLUGIN_S = 30.0


async def install(client: Client, plugin: Bootstrap, topic: str) -> set[str]:
    """Give a plugin to the workers that are there and that come; return the addresses of those that are.

    Parameters
    ----------
    client
        Of the cluster.
    plugin
        What becomes a plugin there.
    topic
        Topic of Dask's events that hears of workers that are gone.
    """
    name = plugin.name
    with contextlib.suppress(Exception):  # a scheduler that takes no plugins: a worker is gone when it does not answer
        packed = by_value(Removals(name, topic))
        register = client.scheduler.register_scheduler_plugin(plugin=packed, name=name, idempotent=True)
        await asyncio.wait_for(register, PLUGIN_S)
    register = client.scheduler.register_worker_plugin(plugin=by_value(plugin), name=name, idempotent=True)
    try:
        return set(await asyncio.wait_for(register, PLUGIN_S))
    except OSError:  # one worker was cut off, for which Dask gives no answer at all: who has no plugin will not speak
        return set(await client.scheduler.ncores())


async def uninstall(client: Client, name: str, topic: str) -> None:
    """Remove the plugins from the cluster; a worker that is cut off meanwhile does not matter."""
    client.unsubscribe_topic(topic)
    with contextlib.suppress(Exception):  # it is not there
        await client.scheduler.unregister_scheduler_plugin(name=name)
    try:
        await client.scheduler.unregister_worker_plugin(name=name)
    except OSError:
        await client.scheduler.ncores()  # else the scheduler is gone itself


def usable(client: Client | None, how: str) -> Client:
    """Return a client that can be used, the current one if none is given; `how` one is given, in code."""
    if client is None:
        try:
            client = Client.current()
        except ValueError:
            raise ConfigError(f"there is no Dask client here: {how}") from None
    if not isinstance(client, Client):
        raise ConfigError(f"client must be a distributed.Client, got {client!r}")
    if client.asynchronous:
        raise ConfigError("client must have a loop thread of its own: Client(..., asynchronous=False)")
    if client.status != "running":
        raise ConfigError(f"client must be connected, it is {client.status}")
    return client
