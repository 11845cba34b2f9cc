"""Splits of a task that can be worked by hand, as its journal says them."""

from drlnb.records import round as rounds
from drlnb.records.columns import batching as words
from drlnb.records.columns.warmup import WakeCollector
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from tests.views.journals import Run

FENCE = Fence(epoch=1, token=1)
FAST, SLOW = "n0/cpu0", "n1/cpu0"


def journal(*attempts, name="a", origin="measured", **config):
    """Return the journal of a task each of whose attempts says some records after it was opened."""
    run = Run(origin=origin)
    for number, records in enumerate(attempts, start=1):
        stream = f"task-{name}-a{number}"
        run.open(stream, "round", {"task": name, "planners": {"batching": "jump-reset", "collect": "equal"}, **config})
        run.say(stream, rounds.TaskOpened(
            t=0.0, attempt=number, version=0, n_rounds=0, n_timesteps=0, elapsed_s=0.0, episodes=(), n_bytes=0
        ), *records)  # fmt: skip
    return run.journal()


def planned(split, *sizes, speeds=(), members=(FAST, SLOW), predicted_s=0.0):
    return words.SplitPlanned(
        round=1, planner="jump-reset", members=members, sizes=sizes, speeds_hz=speeds, split=split,
        predicted_s=predicted_s,
    )  # fmt: skip


def share(t, split, slot, n, done=None, compute_s=1.0, elapsed_s=1.5, key=""):
    done = n if done is None else done
    return words.ShareComputed(
        t=t, round=1, split=split, slot=slot, fence=FENCE, first=0, n_planned=n, n_done=done, denominator=float(done),
        loss=1.0, norm_sq=1.0, compute_s=compute_s, elapsed_s=elapsed_s, age_s=elapsed_s, key=key or f"{split}-{slot}",
    )  # fmt: skip


def finish(*members, fence=FENCE, slot=FAST):
    return rounds.FinishRound(
        round=1, fence=fence, slot=slot, collectors=(0,), swap=None, members=members, sizes=(1,) * len(members)
    )


def join(slot=SLOW):
    return words.JoinRound(
        fence=FENCE, slot=slot, round=1, version=1, after_timesteps=9, keys=("k",), collectors=(0,),
        members=(FAST, SLOW), sizes=(1, 1),
    )  # fmt: skip


def stage(slot=SLOW):
    return rounds.ComputeGradient(
        fence=FENCE, slot=slot, round=1, version=1, after_timesteps=9, collector=0, key="k"
    )  # fmt: skip


def woken(collector, factor, round=0):
    return WakeCollector(
        collector=collector, node="n0", round=round, version=round, n_steps=10, n_timesteps=0, slowed=factor
    )  # fmt: skip


def joined(t, slot, compute_s, elapsed_s, round=1, fence=FENCE):
    return words.RoundJoined(t=t, round=round, slot=slot, fence=fence, compute_s=compute_s, elapsed_s=elapsed_s)


def made(t, compute_s, elapsed_s, round=1, fence=FENCE):
    return rounds.ParametersReady(
        t=t, round=round, fence=fence, elapsed_s=elapsed_s, n_bytes=4, key="k", metrics={}, compute_s=compute_s
    )


def quorum(split, grace_s):
    return words.QuorumReached(split=split, first=(FAST,), targets=(SLOW,), grace_s=grace_s)


def closed(split, n_used, duration_s, cause="all", wait_s=0.25, **lost):
    return words.SplitClosed(
        round=1, split=split, n_used=n_used, lost=lost, duration_s=duration_s, wait_s=wait_s, cause=cause
    )  # fmt: skip


def applied(t, split, *keys):
    return (
        words.ApplyGradients(
            slot=FAST, fence=FENCE, round=1, split=split, step=split, keys=keys, denominators=(1.0,) * len(keys),
            others=(SLOW,),
        ),
        words.GradientsApplied(t=t, round=1, split=split, fence=FENCE, elapsed_s=0.1, key=f"p{split}"),
    )  # fmt: skip


def went_on(t, key):
    """Return how a lead goes on from steps of its own under another lease; without a key it does not have them."""
    return applied(t, 0)[0], words.GradientsApplied(t=t, round=1, split=0, fence=FENCE, elapsed_s=0.1, key=key)


def gradient(t, collector, slot, elapsed_s=1.0, round=0):
    return rounds.GradientComputed(
        t=t, collector=collector, round=round, fence=FENCE, slot=slot, elapsed_s=elapsed_s, key="k"
    )  # fmt: skip


def arrived(t, collector, collect_s, round=0):
    return rounds.ExperienceArrived(
        t=t, collector=collector, round=round, attempt=1, version=0, n_samples=40, n_bytes=1, key=f"{collector}",
        collect_s=collect_s, episodes=(),
    )  # fmt: skip


def steps_planned(*n_steps, round=0, planner="jump-reset"):
    return words.BatchPlanned(round=round, planner=planner, collectors=tuple(range(len(n_steps))), n_steps=n_steps)


def slowed(t, member, factor=2.0, n_rounds=20):
    return words.MemberSlowed(t=t, member=member, factor=factor, n_rounds=n_rounds)


def ordered(split, slot, factor, n=50, round=1):
    return words.ComputeShare(
        fence=FENCE, slot=slot, round=round, version=1, after_timesteps=9, split=split, step=split, first=0, n=n,
        chunk=0, lead=FAST, parameters="", slowed=factor,
    )  # fmt: skip


def changed(t, key, value):
    return SettingChanged(t=t, key=f"batching.{key}", value=value, task="a")


#: The round's steps count.
COMMITTED = rounds.ParametersCommitted(t=8.0, version=2, fence=FENCE)
#: Two steps: both in time, then one that is cut after half its share and one that is never heard of.
STORY = (
    planned(1, 80, 20, speeds=(80.0, 20.0), predicted_s=1.5),
    share(1.0, 1, FAST, 80, compute_s=1.0, elapsed_s=1.0),
    share(2.0, 1, SLOW, 20, compute_s=1.5, elapsed_s=2.0),
    closed(1, 100, 2.0, wait_s=0.5),
    *applied(2.0, 1, f"1-{FAST}", f"1-{SLOW}"),
    planned(2, 60, 40, speeds=(80.0, 40.0), predicted_s=1.0),
    share(3.0, 2, FAST, 60, compute_s=0.75, elapsed_s=1.0),
    quorum(2, 0.5),
    share(3.5, 2, SLOW, 40, done=20, compute_s=1.25, elapsed_s=1.5),
    closed(2, 80, 1.5, "cut", wait_s=0.25, cut=20),
    *applied(3.5, 2, f"2-{FAST}", f"2-{SLOW}"),
    planned(3, 60, 40, speeds=(80.0, 40.0), predicted_s=1.0),
    share(4.5, 3, FAST, 60, compute_s=0.75, elapsed_s=1.0),
    quorum(3, 0.5),
    closed(3, 60, 1.5, "deadline", wait_s=0.5, late=40),
    *applied(5.0, 3, f"3-{FAST}"),
    share(7.5, 3, SLOW, 40, compute_s=3.5, elapsed_s=4.0),
)
