"""Waiting for a CPU slot of a node, without processes: in order, never more than there are, none is lost."""

import asyncio
import random

import pytest

from drlnb.runtime.node.cpu_slots import CpuSlots, n_cpus


async def turns(n=5):
    """Let everything that is ready run."""
    for _ in range(n):
        await asyncio.sleep(0)


def test_a_free_slot_costs_no_turn_of_the_loop():
    """Nothing is awaited: 0 s, exactly."""
    entering = CpuSlots(1).held().__aenter__()
    with pytest.raises(StopIteration) as done:
        entering.send(None)
    assert done.value.value == 0.0


def test_who_waits_has_its_turn_in_the_order_of_asking():
    """And is told how long it has waited; as many at once as there are slots."""

    async def go():
        slots, told = CpuSlots(2), []

        async def act(i):
            async with slots.held() as waited_s:
                told.append((i, waited_s > 0.0, slots.n_held))
                await asyncio.sleep(0)

        await asyncio.gather(*(act(i) for i in range(5)))
        return slots.n_held, told

    n_held, told = asyncio.run(go())
    assert n_held == 0
    assert [(i, waited) for i, waited, _ in told] == [(0, False), (1, False), (2, True), (3, True), (4, True)]
    assert max(n for _, _, n in told) == 2


@pytest.mark.parametrize("late", [False, True])
def test_a_wait_that_is_cancelled_holds_nobody_up(late):
    """Before its turn, or at the moment of it: the next one has the slot."""

    async def go():
        slots = CpuSlots(1)
        holder = slots.held()
        await holder.__aenter__()

        async def act(told):
            async with slots.held():
                told.append(1)

        gone, there = [], []
        first, second = asyncio.ensure_future(act(gone)), asyncio.ensure_future(act(there))
        await turns()
        if late:
            await holder.__aexit__(None, None, None)  # its turn has come, and it has not run yet
            first.cancel()
        else:
            first.cancel()
            await turns()
            await holder.__aexit__(None, None, None)
        await asyncio.gather(first, second, return_exceptions=True)
        return gone, there, slots.n_held

    assert asyncio.run(go()) == ([], [1], 0)


def test_an_error_gives_the_slot_back():
    """Whatever happens to who has it."""

    async def go():
        slots = CpuSlots(1)
        with pytest.raises(ConnectionError):
            async with slots.held():
                raise ConnectionError
        return slots.n_held

    assert asyncio.run(go()) == 0


def test_another_number_counts_at_once():
    """More let the queue move up; fewer are reached as those that act are done."""

    async def go():
        slots, ends, seen = CpuSlots(1), [asyncio.Event() for _ in range(4)], []

        async def act(i):
            async with slots.held():
                seen.append(i)
                await ends[i].wait()

        acting = [asyncio.ensure_future(act(i)) for i in range(4)]
        await turns()
        now = [list(seen)]
        slots.resize(3)
        await turns()
        now.append(list(seen))
        slots.resize(1)
        ends[0].set(), ends[1].set()
        await turns()
        now.append(list(seen))
        ends[2].set()
        await turns()
        now.append(list(seen))
        ends[3].set()
        await asyncio.gather(*acting)
        return now, slots.n_held

    now, n_held = asyncio.run(go())
    assert now == [[0], [0, 1, 2], [0, 1, 2], [0, 1, 2, 3]]
    assert n_held == 0


@pytest.mark.parametrize("seed", range(20))
def test_no_slot_is_ever_lost_or_made(seed):
    """Whatever comes, goes, fails or is cancelled, in any order: never more at once than ever lent, at last none."""

    async def go():
        rng, slots, acting, most = random.Random(seed), CpuSlots(2), [0], [0]

        async def act():
            async with slots.held():
                acting[0] += 1
                most[0] = max(most[0], acting[0])
                try:
                    await turns(rng.randrange(4))
                    if rng.random() < 0.2:
                        raise ConnectionError
                finally:
                    acting[0] -= 1

        tasks = []
        for _ in range(60):
            tasks.append(asyncio.ensure_future(act()))
            await turns(rng.randrange(3))
            if rng.random() < 0.3:
                rng.choice(tasks).cancel()
            if rng.random() < 0.1:
                slots.resize(rng.choice([1, 2, 3]))
        await asyncio.gather(*tasks, return_exceptions=True)
        return slots.n_held, most[0]

    n_held, most = asyncio.run(go())
    assert n_held == 0
    assert most <= 3


def test_there_is_a_cpu():
    """As many as this process may use."""
    assert n_cpus() >= 1
