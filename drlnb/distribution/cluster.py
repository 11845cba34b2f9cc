"""Put a publisher's plugin onto a Dask cluster."""

import logging
import os
import platform
import time

from distributed import Client

from drlnb.runtime.client import plugins
from drlnb.runtime.files import versions
from drlnb.runtime.node.bootstrap import Bootstrap
from drlnb.runtime.protocol import Plain

__all__ = ["TopicClient", "close_idle", "install"]


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
    return await plugins.install(client, plugin, topic)


def close_idle(client: Client) -> None:
    """Close connections to workers that a client would keep for later; Dask logs that for whoever debugs Dask."""
    logger = logging.getLogger("distributed.core")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        client.rpc.collect()
    finally:
        logger.setLevel(level)
