"""What `python -m benchmarks warmup-live` reads from a task's stream."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks.efforts import WarmupLive
from benchmarks.frame import padded
from benchmarks.warmup import live
from benchmarks.warmup.live import PAIRS, WAYS, Lived, live_rows, old_steps
from drlnb.planning.warmup import WARMUP
from drlnb.records import round as words
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened


def _stream(*records):
    header = StreamOpened(stream="s", machine="round", config={}, origin="measured", version="0")
    return Stream(header=header, records=records, torn=False, source="here")


def _arrived(round_, version, n):
    return words.ExperienceArrived(
        t=0.0,
        collector=0,
        round=round_,
        attempt=1,
        version=version,
        n_samples=n,
        n_bytes=1,
        key="k",
        collect_s=1.0,
        episodes=(),
    )


def _committed(version):
    return words.ParametersCommitted(t=0.0, version=version, fence=Fence(epoch=1, token=version))


def test_steps_under_an_old_version_are_counted():
    """Round 2's first collector acted with version 2, its second one, 5 steps, still with version 1."""
    clean = (_committed(1), _arrived(1, 1, 8), _committed(2), _arrived(2, 2, 8))
    assert old_steps(_stream(*clean)) == (16, 0)
    assert old_steps(_stream(*clean, _arrived(2, 1, 5))) == (21, 5)


LIVED = Lived(round_s=(1.0, 1.0), n_steps=100, n_old=0, start_s=(0.5, 0.5), n_ahead=1, actions={"cold": 4})


def test_figures_by_hand():
    """Pre-warmed .8 s of cold's 1 s keeps the bar of .85; one way with 3 old steps misses W4 for all."""
    found = {name: [LIVED] for name in WAYS}
    found["spawn-saa"] = [replace(LIVED, round_s=(0.8,), n_old=3, actions={"start": 3, "cold": 1})]
    made = {row.id: row for row in live_rows(found, PAIRS)}
    assert (made["w3-spawn-saa"].ratio, made["w3-spawn-saa"].holds) == (0.8, True)
    assert "planned: 3 start, 1 cold" in made["w3-spawn-saa"].title
    assert (made["w4-old-steps"].value, made["w4-old-steps"].holds) == (3.0, False)
    assert "of 600, by every way" in made["w4-old-steps"].title
    assert "7 of 14" not in made["w3-start-spawn-cold"].title
    assert "1 of 2 were commanded ahead" in made["w3-start-spawn-cold"].title


def test_rounds_that_hide_a_start_are_compared_apart(monkeypatch):
    """Under names of their own, with four ways of the six, all of which are measured in turn."""
    asked = []

    def train(tasks, name, *, planners, settings):
        asked.append((planners["warmup"], tasks[0].spec.env, tasks[0].spec.total_timesteps))
        return Journal(streams={"a": _stream()})

    stage = contextlib.nullcontext(SimpleNamespace(train=train))
    monkeypatch.setattr(live, "open_stage", lambda: stage)
    monkeypatch.setattr(
        live, "read", lambda stream: LIVED if asked[-1][0] == "cold" else replace(LIVED, round_s=(0.8,))
    )
    made = {row.id: row for row in live.ahead(WarmupLive(repeats=2, rounds=3))}
    assert [planner for planner, _, _ in asked] == ["cold", "saa", "patent", "saa"] * 2
    assert {(env, steps) for _, env, steps in asked} == {(padded.ENV, (3 + 9) * 8)}
    assert (made["w3-ahead-saa"].ratio, made["w3-ahead-saa"].holds) == (pytest.approx(0.8), True)
    assert (made["w4-ahead-old-steps"].value, made["w4-ahead-old-steps"].holds) == (0.0, True)


def test_every_way_can_be_asked_for():
    """Planners and settings are those that exist; parking stands beside all that end their processes."""
    assert {planner for planner, _, _ in WAYS.values()} <= set(WARMUP.names)
    assert {name for name, (_, mode, _) in WAYS.items() if mode == "park"} == {"park"}
