"""Measure links that are played on a clock that jumps: latency, rates of cards, bursts, hosts that do not answer."""

import asyncio
from collections import defaultdict

import pytest

from benchmarks.distribution.emulated import Bucket
from drlnb.runtime.distribution.probe import are_here, measure, rate
from tests.runtime.distribution.test_relays import JumpingLoop

RATE, LATENCY_S = 1e7, 0.004


class Played:
    """A node's link: messages leave its card and enter the receiver's, after a burst that passes at once."""

    def __init__(self, address, cards, burst=0, silent=()):
        self.address, self.cards, self.burst, self.silent = address, cards, burst, silent
        self.sizes = []

    async def call(self, address, op, /, *, timeout_s, payload=b"", **message):
        if address in self.silent:
            await asyncio.sleep(timeout_s)
            return {"refused": f"{address} did not answer {op} in {timeout_s:g} s"}
        if op == "drlnb_probe_rate":
            return {"bytes_per_s": await rate(Played(address, self.cards, silent=self.silent), [message["address"]])}
        now = asyncio.get_running_loop().time()
        self.sizes.append(len(payload))
        passes = min(self.burst, len(payload))
        self.burst -= passes
        took_s = (len(payload) - passes) / RATE
        done = max(self.cards[self.address, "out"].take(now, took_s)[1], self.cards[address, "in"].take(now, took_s)[1])
        await asyncio.sleep(done - now + 2 * LATENCY_S)
        return {"ok": True}


def at(host):
    return f"tcp://{host}:1"


def play(hosts, **how):
    """Return what is measured of some hosts, and the seconds that it took on the played clock."""

    async def go():
        silent = [at(host) for host in how.pop("silent", "")]
        link = Played(at("learner"), defaultdict(Bucket), silent=silent, **how)
        taking_part, figures = await measure(link, {host: at(host) for host in hosts})
        return taking_part, figures, asyncio.get_running_loop().time(), link.sizes

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(go())


def test_figures_are_those_of_the_links():
    """Of the first, the middle and the last host; a burst that passes at once is not counted; within a second."""
    taking_part, figures, took_s, sizes = play("abcdefgh", burst=200_000)
    assert taking_part == ("a", "e", "h")
    assert figures["latency_s"] == pytest.approx(LATENCY_S, rel=0.2)
    assert 0.0 < figures["overhead_s"] < 0.001
    for name in ("learner", "egress", "ingress"):
        assert figures[f"{name}_bytes_per_s"] == pytest.approx(RATE, rel=0.1)
    assert took_s < 1.0
    assert max(sizes) <= 4 << 20


def test_who_does_not_answer_takes_no_part():
    """Two hosts tell all; one tells nothing of what hosts send; none tells nothing."""
    assert play("abc", silent="b")[0] == ("a", "c")
    one, figures, *_ = play("abc", silent="bc")
    assert one == ("a",)
    assert "egress_bytes_per_s" not in figures
    assert figures["ingress_bytes_per_s"] == pytest.approx(RATE, rel=0.1)
    assert play("abc", silent="abc")[:2] == ((), {})


def test_a_host_on_the_learners_own_node_sends_to_others():
    """What needs no wire is not measured; alone it tells nothing."""
    assert play(["learner"])[:2] == (("learner",), {})
    taking_part, figures, *_ = play(["b", "learner"])
    assert taking_part == ("b", "learner")
    assert figures["egress_bytes_per_s"] == pytest.approx(RATE, rel=0.1)


def test_addresses_of_this_machine_are_known():
    """All of them must be; of whoever is not up nothing is said."""
    assert are_here(["tcp://127.0.0.1:4000", "tls://127.0.0.1:5000", ""])
    assert not are_here(["tcp://127.0.0.1:4000", "tcp://192.0.2.7:4000"])
    assert play("ab")[1]["one_machine"] is False
