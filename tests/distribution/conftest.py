"""Clusters that tests of distribution start, and a slow card for who publishes."""

from functools import partial

import pytest

from benchmarks.distribution.emulated import Card, Emulated
from drlnb.runtime.distribution.relay import HostRelay
from drlnb.runtime.link import Link
from tests.runtime.live import make_foreign

__all__ = ["make_foreign", "slow_card"]


class _SlowLink(Link):
    """Sends versions through a card of so many bytes a second; who receives them needs none."""

    def __init__(self, worker, bytes_per_s):
        super().__init__(worker)
        self._card = Card(Emulated(egress_bytes_per_s=bytes_per_s, ingress_bytes_per_s=bytes_per_s))

    async def call(self, address, op, /, *, payload=b"", **message):
        if op == "drlnb_chunk":
            await self._card.send(len(payload))
        return await super().call(address, op, payload=payload, **message)


@pytest.fixture
def slow_card(monkeypatch):
    """Return what gives a card of so many bytes a second to publishers of this process."""
    return lambda rate: monkeypatch.setattr(HostRelay, "speaker", partial(_SlowLink, bytes_per_s=rate))
