"""Work that takes longer on purpose: by sleeping after it, and by nothing else."""

import time
from types import SimpleNamespace

import pytest
import torch

from drlnb.records.columns.batching import JoinRound
from drlnb.runtime.children import padding as module
from drlnb.runtime.children.padding import Padding
from drlnb.runtime.children.shares.minibatches import _Gang
from tests.runtime.learning import FENCE, LearningChild


class Clock:
    """Time that goes on by sleeping, and by what a test works."""

    def __init__(self):
        self.now_s, self.slept = 100.0, []

    def perf_counter(self):
        return self.now_s

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_work_takes_so_many_times_as_long(clock):
    """0.2 s of work become 0.6 s, in naps of no more than 0.05 s with a look after each; then 0.1 s become 0.3 s."""
    looks = []
    padding = Padding(3.0, lambda: looks.append(clock.now_s))
    clock.now_s += 0.2
    assert padding.rest() == pytest.approx(0.6)
    assert sum(clock.slept) == pytest.approx(0.4)
    assert max(clock.slept) <= 0.05
    assert len(looks) == len(clock.slept) >= 8
    clock.now_s += 0.1
    assert padding.rest() == pytest.approx(0.3)
    clock.now_s += 9.0
    padding.begin()  # that was waiting for others
    clock.now_s += 0.1
    assert padding.rest() == pytest.approx(0.3)


def test_nobody_sleeps_who_is_not_slow(clock):
    """The seconds of work are told all the same."""
    padding = Padding(1.0, lambda: pytest.fail("nobody slept"))
    clock.now_s += 0.25
    assert padding.rest() == pytest.approx(0.25)
    assert clock.slept == []


def test_what_a_look_raises_ends_the_sleep(clock):
    """A lease that is lost is not slept through."""

    def gone():
        raise ConnectionError("the lease is over")

    padding = Padding(100.0, gone)
    clock.now_s += 1.0
    with pytest.raises(ConnectionError, match="the lease is over"):
        padding.rest()
    assert sum(clock.slept) <= 0.05


def test_a_member_of_shared_minibatches_brings_its_parts_later_and_waits_for_others_as_long_as_it_must(clock):
    """Two minibatches of 0.1 s at thrice their time; the 5 s in which it waits for another one's part are no work."""
    command = JoinRound(
        fence=FENCE, slot="s1", round=1, version=1, after_timesteps=9, keys=(), collectors=(), members=("s0", "s1"),
        sizes=(1, 1), slowed=3.0,
    )  # fmt: skip
    brought = []

    def met(number):
        clock.now_s += 5.0
        return [brought[-1]["place"]] * 2  # the other one's part is like this one's

    member = _Gang(command, [("s0", "a"), ("s1", "a")], lambda part: brought.append(part), met, lambda: None)
    gradient, statistics = torch.tensor([1.0, 2.0]), torch.tensor([4.0])
    for factor in (2.0, 4.0):
        clock.now_s += 0.1
        member.add_up(gradient, statistics)
        assert gradient.tolist() == [factor, 2 * factor]
    assert member.compute_s == pytest.approx(0.6)
    assert sum(clock.slept) == pytest.approx(0.4)
    member.close()


@pytest.mark.parametrize("n_epochs", [1, 2])
def test_an_executor_sleeps_and_computes_the_same(n_epochs, monkeypatch):
    """Of gradients at arrival while they are staged, in epochs after each step; and no bit is another one."""
    slept, made = [], []
    clock = SimpleNamespace(perf_counter=time.perf_counter, sleep=lambda s: slept.append(s) or time.sleep(s))
    monkeypatch.setattr(module, "time", clock)
    for slowed in (1.0, 1.5):
        child = LearningChild(algo="ppo", n_epochs=n_epochs, batch_size=64, n_steps=16)
        for header, data in child.frames(1):
            assert child.ask("stage", data, **header, slowed=slowed)[0]["op"] == "staged"
        n_staged = len(slept)
        answer, parameters = child.ask("finish", round=1, slowed=slowed)
        made.append(parameters)
        assert answer["op"] == "made"
        if slowed == 1.0:
            assert slept == []
        for collector in child.collectors:
            collector.close()
    assert made[0] == made[1]
    assert n_staged >= 2 or n_epochs > 1
    assert len(slept) > n_staged
