"""Traps 15 to 21: the order of copies on streams, proven by vector clocks; each wait is taken away once and missed."""

import warnings
from types import SimpleNamespace

import psutil
import pytest
import torch

from drlnb.runtime.swapping.tiers.base import Held, Meter, flat
from drlnb.runtime.swapping.tiers.host import host_memory
from drlnb.runtime.swapping.tiers.slab import SlabTier
from tests.runtime.swapping.checked import CheckedStreams, RaceFound
from tests.runtime.swapping.nets import differing, images, made, plain_step, state
from tests.runtime.swapping.rig import Step, stepping, swapper

KIB, MIB = 1024, 1 << 20


class Forgetful(CheckedStreams):
    """Leaves out the waits of one stream, or those for the events of another one."""

    def __init__(self, side, of="any", seed=0):
        super().__init__(seed)
        self._left_out = (side, of)

    def wait(self, side, event):
        if side != self._left_out[0] or self._left_out[1] not in {"any", event.side}:
            super().wait(side, event)


class Bench:
    """A slab tier, and a computing stream that writes what is stored and reads what is back."""

    def __init__(self, streams, stash_bytes=0):
        self.streams, self.meter = streams, Meter()
        self.tier = SlabTier(self.meter, streams, stash_bytes)

    def store(self, value, n_bytes=8 * KIB):
        memory = self.streams.empty(n_bytes)
        self.streams.touch(memory, writes=True)
        memory.fill_(value)
        return self.tier.store(Held(self.meter, memory.untyped_storage()))

    def read(self, ticket):
        memory = flat(ticket.wait().storage)
        self.streams.touch(memory, writes=False)
        return memory.clone()


def there_and_back(bench, n=6):
    """Store some, bring them back in another order ahead of their use, and return whether all are as they were."""
    tickets = [bench.store(i) for i in range(n)]
    while bench.tier.relieve():
        pass
    good = True
    for i in reversed(range(n)):
        for ahead in tickets[max(i - 1, 0) : i + 1]:
            ahead.load()
        good &= bool((bench.read(tickets.pop()) == i).all())
    return good


@pytest.mark.parametrize("seed", range(10))
def test_traps_15_16_20_every_delay_gives_the_same_numbers(seed):
    """Copies out and back overlap on two streams, are as late as events allow, and no two accesses race."""
    assert there_and_back(Bench(CheckedStreams(seed)))


MISSED = {
    "15: the buffer's memory may still be in use": ("back", None),
    "15: the copy back may not be finished when it is read": (None, "back"),
    "16: the source may not be written yet": ("out", None),
    "16: the source may be used again before it was copied": (None, "out"),
}


@pytest.mark.parametrize("missing", MISSED)
def test_traps_15_16_without_one_of_the_waits_a_race_is_found(missing):
    """Each wait of the tier is needed: the checker finds what would happen without it."""
    bench = Bench(Forgetful(*MISSED[missing]))
    with pytest.raises(RaceFound, match="in no order") as found_race:
        there_and_back(bench)
    bench.streams.forgive()
    assert found_race.traceback


def test_trap_16_what_waits_for_its_copy_is_bounded_in_bytes():
    """Sources are dropped once more than the bound wait, not once a number of them do."""
    bench = Bench(CheckedStreams(), stash_bytes=20 * KIB)
    tickets = []
    for i in range(8):
        tickets.append(bench.store(i))
        assert bench.meter.n_bytes <= 20 * KIB


def test_trap_16_what_has_left_but_for_its_copy_comes_back_within_the_budget():
    """Its memory was promised to what is computed next, though the device is behind: others leave before it returns."""
    streams = CheckedStreams()
    streams.done = lambda event: False  # the device is busy all the time
    step = Step(SlabTier(Meter(), streams, 1 << 20))
    with step.open() as tape:
        step.meter.limit_bytes = 32 * KIB
        handles = [tape.pack(torch.full((2 * KIB,), float(i))) for i in range(5)]
        assert step.meter.n_bytes == 16 * KIB  # two sources wait for their copies; there is room for two to come
        step.meter.limit_bytes = 16 * KIB
        step.meter.restart()
        for i, handle in enumerate(handles):
            assert (tape.unpack(handle) == i).all()
        assert step.meter.peak_bytes == 16 * KIB


@pytest.mark.parametrize("forgotten", [False, True])
def test_trap_16_what_is_wanted_back_before_it_has_left_stays(forgotten):
    """Others are not promised its room: it counts until it was read, or nobody wants it any more."""
    bench = Bench(CheckedStreams(), stash_bytes=64 * KIB)
    ticket = bench.store(7)
    ticket.load()
    while bench.tier.relieve():
        pass
    assert bench.meter.n_bytes == 8 * KIB
    if forgotten:
        ticket.forget()
        assert bench.meter.n_bytes == 0
    for _ in range(2):  # the second time from the slab
        assert (bench.read(ticket) == 7).all()
        assert bench.meter.n_bytes == 0


def test_trap_16_what_stayed_is_used_again_after_its_copy():
    """The computing stream waits for the copy out before it may write there; without that wait it is a race."""
    for streams, races in ((CheckedStreams(), False), (Forgetful(None, "out"), True)):
        bench = Bench(streams, stash_bytes=64 * KIB)
        ticket = bench.store(7)
        ticket.load()
        while bench.tier.relieve():
            pass
        memory = flat(ticket.wait().storage)
        if races:
            with pytest.raises(RaceFound, match="stream compute writes 8192 bytes that stream out reads"):
                streams.touch(memory, writes=True)
            streams.forgive()
        else:
            streams.touch(memory, writes=True)


def test_what_somebody_else_holds_is_found_out_though_the_device_is_behind():
    """A slice of the caller's frees nothing when it is swapped: it stays from the next step on."""
    streams = CheckedStreams()
    streams.done = lambda event: False
    step, x = Step(SlabTier(Meter(), streams, 0)), torch.randn(32, 32)
    weight = torch.ones(32, 32, requires_grad=True)
    with step.open() as tape:
        loss = (weight * x).sum()
        loss.backward()
    assert [*tape.others.values()] == ["something else holds it"]


def test_what_waits_to_leave_the_device_is_not_taken_for_held():
    """Its copy is done, nobody has wanted its room yet: that is the tier's doing, nobody else's."""
    streams = CheckedStreams()
    step = Step(SlabTier(Meter(), streams, 64 * KIB))
    x = torch.randn(32, 32, requires_grad=True)
    with step.open() as tape:
        loss = x.exp().sum()
        (saved,) = tape.rows.values()
        tape.part()
        while not streams.done(saved.ticket.stored):
            pass
        loss.backward()
    assert tape.others == {}
    assert torch.equal(x.grad, x.exp())


def test_trap_17_a_copy_back_that_nobody_wants_is_waited_for():
    """Its memory goes back to the computing stream after the copy; without the wait that is a race."""
    for streams, races in ((CheckedStreams(), False), (Forgetful(None, "back"), True)):
        bench = Bench(streams)
        ticket = bench.store(1)
        while bench.tier.relieve():
            pass
        ticket.load()
        if races:
            with pytest.raises(RaceFound):
                ticket.forget()
            streams.forgive()
        else:
            ticket.forget()
        assert bench.meter.n_bytes == 0


def test_trap_18_a_place_is_written_again_after_its_last_copy_back():
    """A slab of one place serves step after step; without the computing stream's wait for the copy back that races."""
    for streams, races in ((CheckedStreams(1), False), (Forgetful(None, "back"), True)):
        bench = Bench(streams)
        first = bench.store(1)
        while bench.tier.relieve():
            pass
        first.load()
        back = first.wait()
        del first
        if races:
            with pytest.raises(RaceFound, match="stream out writes 8192 bytes that stream back reads"):
                bench.store(2)
            streams.forgive()
        else:
            assert (bench.read(bench.store(2)) == 2).all()
            assert (flat(back.storage) == 1).all()


def test_trap_19_what_is_pinned_is_pinned_once_and_used_by_each_step():
    """A piece more when all are taken, as large as those before it; the next step has the same ones."""
    streams = CheckedStreams()
    bench = Bench(streams)
    assert streams.pinned_bytes == 0  # a swapper that swaps nothing pins nothing
    for sizes in ([3 * MIB] * 4, [3 * MIB] * 4, [5 * MIB, 3 * MIB, 3 * MIB, 3 * MIB]):
        tickets = [bench.store(i, n_bytes=size) for i, size in enumerate(sizes)]
        assert [each.numel() for each in bench.tier.pieces] == [4 * MIB, 4 * MIB, 8 * MIB]
        for i in reversed(range(len(sizes))):
            assert (bench.read(tickets.pop()) == i).all()


def test_trap_19_what_cannot_be_pinned_stays_with_one_line():
    """The host refuses: nobody's step ends by that; what is smaller may still fit, freed places serve again."""
    bench = Bench(CheckedStreams(host_bytes=13 * MIB))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tickets = [bench.store(i, n_bytes=3 * MIB) for i in range(2)]
        assert bench.store(2, n_bytes=9 * MIB) is None  # a piece of 16
        tickets.append(bench.store(2, n_bytes=3 * MIB))  # 8 are refused, 4 are not
        assert bench.store(3, n_bytes=3 * MIB) is None
        del tickets[0]
        tickets.append(bench.store(3, n_bytes=3 * MIB))
    text = "swapping: the host has no memory to pin for saved tensors beyond 8.0 MiB: the rest stays on the device"
    assert [str(each.message) for each in told] == [text]
    for i, ticket in enumerate(tickets):
        assert (bench.read(ticket) == i + 1).all()


def test_trap_19_steps_under_a_host_that_refuses_are_plains():
    """Part of what a plan swaps stays on the device."""
    plain, net, x = made("residual"), made("residual"), images()
    with swapper(net, tier=lambda meter: SlabTier(meter, CheckedStreams(host_bytes=0), 0)) as swap:
        plain_step(plain, x)
        with pytest.warns(RuntimeWarning, match="no memory to pin for saved tensors beyond 0 B"), swap.step() as step:
            plain_step(net, x)
    assert differing(state(plain), state(net)) == []
    assert step.swapped_bytes == 0


def test_trap_19_the_host_has_its_memory_back_once_the_last_ticket_is_gone():
    """A closed tier takes nothing more, but what it holds can be read."""
    streams = CheckedStreams()
    bench = Bench(streams)
    ticket = bench.store(5)
    bench.tier.close()
    assert (bench.store(6), streams.n_given_back) == (None, 0)
    assert (bench.read(ticket) == 5).all()
    del bench.tier, ticket
    assert (streams.pinned_bytes, streams.n_given_back) == (0, 1)


def test_memory_is_counted_within_the_container(tmp_path, monkeypatch):
    """The least of the limits of all groups above a process; what the kernel takes back first is available."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=96 * MIB, available=70 * MIB))
    own = tmp_path / "own"
    for groups, line, names in (
        (tmp_path / "v2", "0::/jobs/mine", ("memory.max", "memory.current", "inactive_file")),
        (
            tmp_path / "v1",
            "3:cpu,cpuacct:/jobs\n4:memory:/jobs/mine",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ):
        own.write_text(line)
        above = groups / ("memory/jobs" if groups.name == "v1" else "jobs")
        (above / "mine").mkdir(parents=True)
        assert host_memory(groups, own) == (96 * MIB, 70 * MIB)  # there is no limit
        for folder, values in ((above, (64 * MIB, 10 * MIB, 0)), (above / "mine", (48 * MIB, 40 * MIB, 30 * MIB))):
            for name, value in zip(names[:2], values[:2], strict=True):
                (folder / name).write_text(f"{value}\n")
            (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {values[2]}\n")
        assert host_memory(groups, own) == (48 * MIB, 38 * MIB)
        (above / "mine" / names[0]).write_text("max\n")
        assert host_memory(groups, own) == (64 * MIB, 54 * MIB)


def test_trap_20_a_copy_out_does_not_hold_up_a_copy_back():
    """The two directions have a stream each: in virtual time they overlap."""
    bench = Bench(CheckedStreams(), stash_bytes=1 << 20)
    early = bench.store(1)
    while bench.tier.relieve():
        pass
    bench.streams.now_s.update({"out": 0.0, "back": 0.0, None: 0.0})
    bench.streams.done = lambda event: False  # the device is busy all the time
    late = bench.store(2, n_bytes=256 * KIB)
    early.load()
    assert bench.streams.now_s["back"] < bench.streams.now_s["out"] + 8 * KIB * 1e-9
    assert (bench.read(late) == 2).all()


@pytest.mark.parametrize("seed", range(3))
def test_traps_15_to_20_whole_steps_race_nowhere(seed):
    """Three steps of a net, prefetch included, with random delays: gradients are plain's, bit by bit."""
    plain, net, x = made("residual"), made("residual"), images()
    streams = CheckedStreams(seed)
    with swapper(net, tier=lambda meter: SlabTier(meter, streams, 50_000)) as swap:
        for _ in range(3):
            plain.zero_grad()
            net.zero_grad()
            plain_step(plain, x)
            with swap.step() as step:
                plain_step(net, x)
        assert step.swapped_bytes > 300_000
    assert differing(state(plain), state(net)) == []


def test_trap_21_under_a_compiler_every_tensor_is_left_alone(monkeypatch):
    """While code is traced, the hooks keep what they are given."""
    with stepping() as step, step.open() as tape:
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert isinstance(tape.pack(torch.ones(64)), tuple)
        monkeypatch.undo()
        assert type(tape.pack(torch.ones(64))).__name__ == "Handle"


def test_trap_21_a_compiled_model_is_left_alone_with_one_warning():
    """Hooks of saved tensors would break what the compiler has made: the step is plain, and the report says why."""
    net, x = made("mlp"), images()
    with swapper(net) as swap:
        net._compiled_call_impl = net._call_impl  # what net.compile() sets
        with pytest.warns(RuntimeWarning, match="the module is compiled"), swap.step() as step:
            plain_step(net, x)
        with swap.step() as again:
            plain_step(net, x)
        report = swap.report()
        assert (step.n_packs, again.n_packs, report.active) == (0, 0, False)
        assert "the module is compiled" in report.reason
        assert "swapping does nothing" in str(report)


def test_rates_are_those_of_copies_that_have_happened():
    """Each way's bytes per second by the device's clock, counted once a copy is over: here a nanosecond a byte."""
    bench = Bench(CheckedStreams(), stash_bytes=1 << 20)
    bench.streams.done = lambda event: False  # the device is busy all the time
    tickets = [bench.store(i) for i in range(3)]
    assert bench.tier.out.s_per_byte == 0.0
    while bench.tier.relieve():
        pass
    del bench.streams.done
    while not bench.streams.done(tickets[-1].stored):
        pass
    for ticket in reversed(tickets):
        bench.read(ticket)
    bench.store(4)
    assert bench.tier.out.s_per_byte == pytest.approx(1e-9)
    assert bench.tier.back.s_per_byte == pytest.approx(1e-9)
