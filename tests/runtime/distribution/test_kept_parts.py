"""Versions of which hosts keep a part, by real relays and stores: every byte is the learner's, whatever was lost."""

import asyncio
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution.changes import kept_ranges, size
from drlnb.records.columns.distribution import BaseMissing, DistributionPlanned, HostDropped, HostsChanged
from drlnb.runtime.distribution import relay as relay_module
from drlnb.runtime.distribution.compare import changed
from tests.runtime.distribution.test_relays import ALONE, PLANNERS, TASK, Wire, play
from tests.strategies import fewer

BLOCK = 64 << 10


def in_blocks(*values, tail=100):
    """Return a version of blocks of one value each, and a short one."""
    return b"".join(bytes([value]) * BLOCK for value in values) + bytes([values[-1]]) * tail


@given(
    st.lists(st.sampled_from([0, 1, BLOCK - 1]), min_size=1, max_size=12),
    st.integers(0, 3 * BLOCK),
    st.randoms(use_true_random=False),
)
def test_what_is_outside_of_the_ranges_is_equal(places, more, random):
    """Bytes that were changed are inside, wherever they lie; an eighth at least is kept, or nothing."""
    old = bytearray(len(places) * BLOCK + more)
    new = bytearray(old)
    for block, place in enumerate(places):
        if random.random() < 0.4:
            new[block * BLOCK + place] = 1
    if random.random() < 0.5:
        new[-1] ^= 2
    ranges = changed(bytes(old), bytes(new))
    kept = kept_ranges(ranges, len(new)) if ranges else ()
    assert all(old[start:stop] == new[start:stop] for start, stop in kept)
    assert not kept or size(kept) >= len(new) / 8
    n_alike = sum(
        old[start : start + BLOCK] == new[start : start + BLOCK] and start > 0 for start in range(0, len(new), BLOCK)
    )
    assert kept or n_alike < len(new) / BLOCK / 4 + 1, "what could be kept is"


def test_versions_of_different_size_have_nothing_in_common():
    """Nor has the first one a former one."""
    assert changed(b"", bytes(9 * BLOCK)) == changed(bytes(9 * BLOCK), bytes(8 * BLOCK)) == ()
    assert changed(bytes(9 * BLOCK), bytes(9 * BLOCK)) == ((0, BLOCK),)


@pytest.mark.parametrize("planner", PLANNERS)
def test_what_has_not_changed_is_not_sent(tmp_path, planner):
    """Each host gets the first block and those that changed, once; all have every byte of each version."""

    async def scene(wire, learner):
        await learner.publish(1, in_blocks(1, 2, 3, 4, 5, 6, 7, 8))
        for version, newer, n_sent in [
            (2, in_blocks(1, 2, 9, 4, 5, 6, 7, 8), 2 * BLOCK),
            (3, in_blocks(1, 2, 9, 4, 5, 6, 7, 8), BLOCK),
            (4, in_blocks(0, 2, 9, 4, 0, 0, 7, 6), 4 * BLOCK + 100),
            (5, in_blocks(*range(20, 28)), 8 * BLOCK + 100),
            (6, in_blocks(1, 2, 3), 3 * BLOCK + 100),
        ]:
            wire.n_bytes.clear()
            await learner.publish(version, newer)
            assert [learner.held(host) for host in learner.hosts] == [(version, newer)] * 5
            assert sorted(wire.n_bytes.values()) == [n_sent] * 5, version
            planned = learner.of(DistributionPlanned)[-1]
            assert (planned.n_bytes, planned.kept_bytes) == (len(newer), len(newer) - n_sent)
        assert not learner.of(BaseMissing)

    play(tmp_path, scene, planner, 5)


@pytest.mark.parametrize("planner", ["star", "chain:c=5", "relay:m=3"])
@pytest.mark.parametrize("loss", ["restarted", "other bytes", "empty", "dropped", "behind"])
def test_who_cannot_keep_a_part_gets_all(tmp_path, planner, loss):
    """A relay that was started anew unnoticed, whose store is gone or has other bytes; a host that missed a version."""

    async def scene(wire, learner):
        await learner.publish(1, in_blocks(1, 2, 3, 4, 5, 6, 7, 8))
        relay = wire.relays["h1"]
        if loss == "restarted":
            relay.close()
            wire.node("h1")
        elif loss == "other bytes":
            relay._kept[TASK].store.shown[4 * BLOCK + 7] ^= 1
        elif loss == "empty":
            relay.drop(*TASK)
        else:
            wire.dead |= {"h1"} if loss == "behind" else set()
            others = tuple(host for host in learner.hosts if host != "h1")
            learner.feed(HostsChanged, hosts=others if loss == "dropped" else learner.hosts)
            await learner.publish(2, in_blocks(1, 2, 3, 4, 5, 9, 7, 8))
            wire.dead.clear()
            learner.feed(HostsChanged, hosts=learner.hosts)
            await wire.settle()
        newer = in_blocks(1, 2, 3, 4, 5, 9, 7, 0)
        await learner.publish(3, newer)
        assert [learner.held(host) for host in learner.hosts] == [(3, newer)] * 4
        lacking = ["h1"] if loss in {"restarted", "other bytes", "empty"} else []
        assert [event.host for event in learner.of(BaseMissing)] == lacking
        assert [drop.host for drop in learner.of(HostDropped)] == ["h1"] * (loss in {"dropped", "behind"})

    play(tmp_path, scene, planner, 4)


def test_a_version_that_was_skipped_is_no_base(tmp_path):
    """Of versions that wait the newest is sent: relative to the one under way, not to those that were never sent."""

    async def scene(wire, learner):
        newest = in_blocks(1, 2, 3, 4, 5, 6, 0, 8)
        learner.ask(1, in_blocks(1, 2, 3, 4, 5, 6, 7, 8))
        learner.ask(2, in_blocks(1, 9, 3, 4, 5, 6, 7, 8))
        learner.ask(3, newest)
        await wire.settle()
        assert [learner.held(host) for host in learner.hosts] == [(3, newest)] * 3
        assert learner.of(DistributionPlanned)[-1].kept_bytes == 6 * BLOCK + 100

    play(tmp_path, scene, "chain:c=3", 3)


class Told(dict):
    """Hears whatever is reported, and keeps what it was."""

    def __missing__(self, op):
        async def hear(**message):
            self[op] = hear

        return hear


async def say(relay, sent, version, base, message):
    """Send a host a part of a version, of whose base it keeps the rest."""
    start, stop = message
    chunk = {"attempt": 1, "version": version, "start": start, "stop": stop, "total": len(sent[version])}
    ranges = changed(sent[base], sent[version]) if base else ()
    keeps = {"base": base, "changed": ranges, "crc": zlib.crc32(sent[version])} if ranges else {}
    where = {**ALONE, "report": "learner", "left_s": 1.0, "n_in_flight": 1, "keeps": keeps}
    try:
        await relay.chunk(TASK, {**chunk, "again": False}, **where, payload=sent[version][start:stop])
    except ConnectionError:
        assert relay._kept[TASK].assembly.newest > (1, version)


def in_any_order(ranges, random):
    """Return both halves of each range, some of them twice."""
    half = [(start, (start + stop) // 2) for start, stop in ranges]
    messages = [*half, *((middle, stop) for (_, middle), (_, stop) in zip(half, ranges, strict=True))]
    messages += random.sample(messages, random.randrange(len(messages)))
    return random.sample(messages, len(messages))


@fewer(10)
@given(st.randoms(use_true_random=False))
def test_versions_that_overtake_each_other_end_right(tmp_path_factory, random):
    """A newer version begins while a host copies what it keeps; messages come twice, in any order."""
    folder, sent = tmp_path_factory.mktemp("stores"), {}

    async def scene(wire):
        wire.node("h0")
        told = wire.handlers["learner"] = Told()
        relay, values, base = wire.relays["h0"], [random.randrange(9) for _ in range(12)], 0
        for version in range(1, 8):
            for _ in range(random.randrange(4)):
                values[random.randrange(12)] = random.randrange(9)
            sent[version] = in_blocks(*values)
            ranges = (changed(sent[base], sent[version]) if base else ()) or ((0, len(sent[version])),)
            for message in in_any_order(ranges, random):
                wire._keep(say(relay, sent, version, base, message))
            for _ in range(random.randrange(12)):
                await asyncio.sleep(0)
            if version == 7 or random.random() < 0.5:
                await wire.settle()
            store = relay._kept[TASK].store if TASK in relay._kept else None
            if store is not None and store.current[1]:
                assert store.shown.tobytes() == sent[store.current[1]]
                base = store.current[1]
        await wire.settle()
        if relay._kept[TASK].store.current != (1, 7):  # the one before became whole meanwhile, and was not the base
            assert "drlnb_lacks" in told
            await say(relay, sent, 7, 0, (0, len(sent[7])))
        assert relay._kept[TASK].store.current == (1, 7)
        assert relay._kept[TASK].store.shown.tobytes() == sent[7]

    async def go():
        wire = Wire(folder)
        try:
            await scene(wire)
        finally:  # hypothesis ends an example in the middle that would draw too much
            wire.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relay_module, "_PIECE_BYTES", BLOCK)
        asyncio.run(go())


def test_a_reader_in_every_slot_makes_a_kept_part_wait(tmp_path):
    """It is made aside, checked, and shown once a slot is free; the one before stays the base until then."""

    async def scene(wire, learner):
        await learner.publish(1, in_blocks(1, 2, 3, 4))
        store = wire.relays["h0"]._kept[TASK].store
        store._cells[:4, 0], store._cells[:4, 2] = 1, np.arange(4) | 1 << 48  # announced, all four
        store._clear_dead = lambda cells: False
        newer = in_blocks(1, 2, 0, 4)
        learner.ask(2, newer)
        for _ in range(50):
            await asyncio.sleep(0)
        assert store.current == (1, 1)
        store._cells[:4] = 0
        await wire.settle()
        assert learner.held("h0") == (2, newer)

    play(tmp_path, scene, "star", 1)
