"""Many collectors that start at once on a node with few CPUs."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.runtime.node import collector_host
from drlnb.runtime.node.collector_host import CollectorHost


class CrowdedHost(CollectorHost):
    """Counts the processes that make their environments, which takes until the next turn of the loop."""

    def __init__(self):
        super().__init__(None)
        self.making = self.most = 0

    async def _launch(self, live, mode):
        self.making += 1
        self.most = max(self.most, self.making)
        live.process = SimpleNamespace(end=lambda _: asyncio.sleep(0))
        live.channel = SimpleNamespace(aclose=lambda: asyncio.sleep(0))

    async def _configure(self, live, header, state, quiet_s):
        await asyncio.sleep(0)
        self.making -= 1
        if header["fails"]:
            raise ConnectionError("no licence")
        return {"op": "ready", "event": {}}


@pytest.fixture
def two_cpus(monkeypatch):
    monkeypatch.setattr(collector_host, "n_cpus", lambda: 2)


@pytest.mark.usefixtures("two_cpus")
@pytest.mark.parametrize("n_failing", [0, 30])
def test_starts_have_a_share_of_a_cpu_each(n_failing):
    """Of 80 collectors on 2 CPUs 8 make their environments at a time: 60 s are then 15 s of a CPU; all have a turn."""

    async def go():
        host = CrowdedHost()
        many = [
            host.start(("r", "a", i), attempt=1, configuration={"fails": i < n_failing}, log="", mode="spawn")
            for i in range(80)
        ]
        answers = await asyncio.gather(*many, return_exceptions=True)
        await host.stop_all()
        return host.most, sum(isinstance(answer, ConnectionError) for answer in answers), host.n_starting

    assert asyncio.run(go()) == (8, n_failing, 0)
