"""Put a publisher's plugins onto a Dask cluster, and remove them again."""

import asyncio
import contextlib
import logging
import os
import platform
import time

from distributed import Client

from drlnb.records.errors import ConfigError
from drlnb.runtime.files import versions
from drlnb.runtime.node.bootstrap import Bootstrap, Removals, by_value
from drlnb.runtime.protocol import Plain

__all__ = ["PLUGIN_S", "TopicClient", "close_idle", "install", "uninstall", "usable"]

#: Longest wait for the workers to take the plugin, in seconds.
PLUGIN_S = 30.0


class TopicClient:
    """What a link needs of a Dask worker, by a client."""

    name, local_directory = "", ""

    def __init__(self, client: Client, topic: str) -> None:
        self.address, self.rpc = topic, client.rpc
        self.handlers: Plain = {}


async def install(client: Client, name: str, topic: str, *, task: str, attempt: int) -> set[str]:
    """Have the workers that are there and that come keep what is published; return the addresses of those that are.

    Parameters
    ----------
    client
        Of the cluster.
    name
        Of the plugins.
    topic
        Topic of Dask's events that hears of workers that are up, cannot be used, or are gone.
    task, attempt
        Name of what is published, and number of its publisher.
    """
    plugin = Bootstrap(
        name,
        versions.versions(),
        "drlnb.runtime.distribution.plugin:RelayPlugin",
        topic,
        task=task,
        attempt=attempt,
        topic=topic,
        publisher=f"process {os.getpid()} on {platform.node()}, opened {time.strftime('%F %T %Z')}",
    )
    with contextlib.suppress(Exception):  # a scheduler that takes no plugins: a worker is gone when it does not answer
        packed = by_value(Removals(name, topic))
        register = client.scheduler.register_scheduler_plugin(plugin=packed, name=name, idempotent=True)
        await asyncio.wait_for(register, PLUGIN_S)
    register = client.scheduler.register_worker_plugin(plugin=by_value(plugin), name=name, idempotent=True)
    try:
        return set(await asyncio.wait_for(register, PLUGIN_S))
    except OSError:  # one worker was cut off, for which Dask gives no answer at all: who has no relay will not speak
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


def close_idle(client: Client) -> None:
    """Close connections to workers that a client would keep for later; Dask logs that for whoever debugs Dask."""
    logger = logging.getLogger("distributed.core")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        client.rpc.collect()
    finally:
        logger.setLevel(level)


def usable(client: Client | None) -> Client:
    """Return a client that can be used, the current one if none is given."""
    if client is None:
        try:
            client = Client.current()
        except ValueError:
            raise ConfigError("there is no Dask client here: Publisher(distributed.Client(...))") from None
    if not isinstance(client, Client):
        raise ConfigError(f"client must be a distributed.Client, got {client!r}")
    if client.asynchronous:
        raise ConfigError("client must have a loop thread of its own: Client(..., asynchronous=False)")
    if client.status != "running":
        raise ConfigError(f"client must be connected, it is {client.status}")
    return client
