"""Who reads a long run holds little of it."""

import subprocess
import sys

import pytest

from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.columns.warmup import WakeCollector
from drlnb.records.ids import Fence
from drlnb.records.journal import StreamOpened
from drlnb.records.packed import Packer
from drlnb.records.spec import RlWork
from drlnb.runtime.files.run_directory import RunDir

#: Reads a run directory in one way and prints how many rounds it saw, and the most memory that it took in MB.
READ = """
import resource, sys
from pathlib import Path
from drlnb.fleet.playback import play
from drlnb.fleet.rows.row_feed import Rows
from drlnb.fleet.rows.tables import table_rows
from drlnb.records.journal import Journal, read_stream
from drlnb.records.round import EndTask
from drlnb.fleet.whatif.preview import preview
from drlnb.views.folds.fold import Fold

how, out = sys.argv[1], Path(sys.argv[2])
journal = Journal.read(out)
if how == "panel":  # that is opened late
    rows = Rows(lambda: journal)
    rows.add([], gap=True)
    fold = Fold(details=False)
    fold.feed(rows.tap().drain()[1])
    n_rounds = int(fold.tasks["a"].metric("round")[-1])
elif how == "play":
    n_rounds = play(out, speed=None).watch.summary()["leases"]["grants"]
elif how == "preview":
    n_rounds = preview(journal, "leasing.hold", "last", tasks=["a"], run="r").recorded.rounds["a"][1]
elif how == "rows":
    n_rounds = table_rows(journal, "metrics", every=100)[-1]["round"] + 99
elif how == "leases":
    n_rounds = table_rows(journal, "leases", every=100)[-1]["round"] + 99
else:
    (end,) = read_stream(out / "journal" / "task-a-a1.jsonl", tail=True).of(EndTask)
    n_rounds = int(end.reason)
print(n_rounds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
"""


POOL = {"settings": {}, "epoch": 1}
ROUND = {"task": "a", "n_envs": 1, "n_collectors": 1, "n_steps": 256, "total_timesteps": 10**12}


def pool_round(k, t, share):
    """Return what the pool says of round `k`."""
    fence, request = Fence(epoch=1, token=k), f"r/a/a/1/{k}"
    lease = {"fence": fence, "task": "r/a", "slots": ("0/cpu0",)}
    asked = {"request_id": request, "task": "r/a", "attempt": 1, "round": k}
    return [
        leasing.SlotRequested(t=t + 0.02, node="0", **asked),
        leasing.LeaseGranted(fence=fence, slots=("0/cpu0",), waited_s=0.0, **asked),
        leasing.SendGrant(request_id=request, waited_s=0.0, **lease),
        leasing.LeaseReturned(t=t + 0.045, fence=fence, clean=True, computed_s=(0.02 + share / 1e3,)),
        leasing.LeaseReleased(held_s=0.025, computed_s=(0.02 + share / 1e3,), reason="returned", **lease),
    ]


def task_round(k, t, share):
    """Return what a task says of round `k`: what folds, tables and callbacks read, and the phases."""
    fence, request = Fence(epoch=1, token=k), f"a/1/{k}"
    trained = {f"train/m{i}": share * i for i in range(12)}
    said = {
        "time/iterations": k,
        "time/total_timesteps": 256 * k,
        "time/time_elapsed": t,
        "round/time_s": 0.05 + share,
        "round/push_s": 0.002,
    }
    fragment = {"collector": 0, "round": k, "attempt": 1, "version": k, "n_samples": 256, "n_bytes": 8192}
    work = {"round": k, "version": k, "after_timesteps": 256 * k, "settings": {}, "fence": fence, "slot": "0/cpu0"}
    return [
        words.PhaseEntered(phase="collecting", round=k),
        WakeCollector(collector=0, node="0", round=k, version=k, n_steps=256),
        words.ExperienceArrived(t=t + 0.01, key=f"1/{k}", collect_s=0.01, episodes=((20.0, 20),), **fragment),
        words.RequestSlot(request_id=request, round=k, n_slots=1, yields=True),
        words.LeaseReceived(t=t + 0.021, request_id=request, fence=fence, slots=("0/cpu0",), waited_s=0.0),
        words.ComputeGradient(collector=0, key=f"1/{k}", **work),
        words.GradientComputed(
            t=t + 0.03, collector=0, round=k, fence=fence, slot="0/cpu0", elapsed_s=0.005 + share / 1e4
        ),
        words.FinishRound(round=k, fence=fence, slot="0/cpu0", collectors=(0,)),
        words.ParametersReady(
            t=t + 0.042, round=k, fence=fence, elapsed_s=0.01, n_bytes=18624, key=f"made/{k}", metrics=trained
        ),
        words.ParametersCommitted(t=t + 0.043, version=k + 1, fence=fence),
        words.ReturnLease(fence=fence, clean=True, computed_s=(0.02,)),
        words.MetricsRecorded(round=k, n_timesteps=256 * k, metrics={**said, **trained}),
        words.LeaseClosed(t=t + 0.0455, fence=fence),
        HostCompleted(t=t + 0.047, host="0", version=k + 1, n_bytes=18624, publish_s=0.002),
    ]


def long_run(out, n_rounds):
    """Write the journal of a run whose rounds differ in every number."""
    nothing = dict.fromkeys(("version", "n_rounds", "n_timesteps", "n_bytes"), 0)
    begun = {
        "broker-e1": [leasing.SlotAdded(t=0.0, slot="0/cpu0", node="0", device="cpu", executor_epoch=1)],
        "task-a-a1": [words.TaskOpened(t=0.0, attempt=1, elapsed_s=0.0, episodes=(), **nothing)],
    }
    spec = RlWork(name="a", env="A-v0", total_timesteps=10**12, n_envs=1)
    RunDir(out).create({"run": "r", "tasks": [spec.to_plain()]})
    for (name, first), rounds in zip(begun.items(), (pool_round, task_round), strict=True):
        machine, config = ("pool", POOL) if name.startswith("broker") else ("round", ROUND)
        header = StreamOpened(stream=name, machine=machine, config=config, origin="measured", version="0")
        packer = Packer()
        with (out / "journal" / f"{name}.jsonl").open("w") as file:
            file.writelines(map(packer.line, (header, *first)))
            for k in range(1, n_rounds + 1):
                share = (k * 2_654_435_761 % 1_000_003) / 1_000_003
                file.writelines(map(packer.line, rounds(k, 0.05 * k, share)))
            if machine == "round":
                file.write(packer.line(words.EndTask(state="done", reason=str(n_rounds))))


def read(out, how):
    done = subprocess.run([sys.executable, "-c", READ, how, str(out)], capture_output=True, text=True, check=True)
    n_rounds, peak_mb = done.stdout.split()
    return int(n_rounds), float(peak_mb)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_who_reads_a_million_rounds_stays_below_200_mb(tmp_path):
    """Panel opened late, tables' hundredth rows, how a killed run stood, a recording's summary, a preview."""
    long_run(tmp_path, 1_000_000)
    for how in ("tail", "rows", "leases", "panel", "play", "preview"):
        n_rounds, peak_mb = read(tmp_path, how)
        assert (how, n_rounds) == (how, 1_000_000)
        assert peak_mb < 200.0, how
