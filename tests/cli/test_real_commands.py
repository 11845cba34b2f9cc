"""The commands as a person runs them: real processes, real signals, a real full disk."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from drlnb.records.columns.leasing import LeaseReleased
from drlnb.records.errors import JournalError
from drlnb.records.journal import Journal
from drlnb.records.round import MetricsRecorded, TaskOpened
from tests.survivors import survivors

pytestmark = pytest.mark.cluster

#: Nothing here may take longer than this, in seconds.
LIMIT_S = 90.0
DRLNB = [sys.executable, "-m", "drlnb.cli.main"]


class Command:
    """A running command, every process that it ever had below it, and its output."""

    def __init__(self, *words, cwd):
        self.out = (cwd / "stdout.txt").open("w+")
        self.err = (cwd / "stderr.txt").open("w+")
        self.process = subprocess.Popen(
            [*DRLNB, *words],
            cwd=cwd,
            stdout=self.out,
            stderr=self.err,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.family = {}

    def until(self, holds, what):
        """Wait until something holds, noting processes meanwhile."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            self.note()
            if holds():
                return
            assert self.process.poll() is None, f"ended before: {what}\n{self.said()}"
            time.sleep(0.05)
        raise AssertionError(f"not within {LIMIT_S:g} s: {what}\n{self.said()}")

    def note(self):
        try:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self.family[child.pid] = child
        except psutil.NoSuchProcess:
            return

    def said(self):
        return "".join(self._text(file) for file in (self.out, self.err))

    def _text(self, file):
        file.flush()
        file.seek(0)
        return file.read()

    def end(self):
        """Wait for the end; return (exit code, stdout, stderr); nothing may be left."""
        while self.process.poll() is None:
            self.note()
            time.sleep(0.05)
        alive = survivors(self.family.values(), 5.0)
        out, err = self._text(self.out), self._text(self.err)
        self.out.close()
        self.err.close()
        assert not alive, f"left behind: {alive}"
        return self.process.returncode, out, err


@pytest.fixture
def command(tmp_path):
    """Start commands in a folder of their own; kill what a failing test leaves."""
    started = []

    def start(*words):
        started.append(Command(*words, cwd=tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.out.close()
        each.err.close()
        each.note()
        for process in each.family.values():
            if process.is_running():
                process.kill()
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def _rounds(out):
    """Count finished rounds in a run's journal so far."""
    with contextlib.suppress(JournalError):
        return len(Journal.read(out).of(MetricsRecorded))
    return 0


def test_train_prints_json_and_its_run_replays(command, tmp_path):
    """The last line of stdout is the JSON object with the documented keys, and every stream of the run replays."""
    words = ["train", "CartPole-v1", "Acrobot-v1", "--gpus", "1", "--total-timesteps", "8192", "--out", "r", "--json"]
    code, out, err = command(*words).end()
    assert code == 0, err
    summary = json.loads(out.splitlines()[-1])
    assert set(summary) == {"run", "tasks", "leases"}
    keys = {"name", "env", "seed", "timesteps", "ep_rew_mean", "eval_mean_reward", "seconds", "steps_per_s", "restarts"}
    assert all(set(task) == keys for task in summary["tasks"])
    assert [task["timesteps"] for task in summary["tasks"]] == [8192, 8192]
    leases = summary["leases"]
    assert set(leases) == {
        "grants", "utilisation", "held", "bound", "inflation", "expected_utilisation", "expected_inflation",
        "hold_planner",
    }  # fmt: skip
    # One per round, and one more where a slot was given away between two batches because somebody waited.
    journal = Journal.read(tmp_path / "r")
    n_yielded = sum(lease.reason == "yielded" for lease in journal.of(LeaseReleased))
    n_bytes = sum(path.stat().st_size for path in (tmp_path / "r" / "journal").iterdir())
    assert n_bytes / len(journal.of(MetricsRecorded)) <= 3_500, "bytes of a round of a small task"
    assert leases["grants"] == 32 + 1 + 2 + 1 + n_yielded
    assert 0 < leases["utilisation"] <= leases["held"] <= 1
    code, out, _ = command("replay", "r").end()
    assert code == 0
    assert "3 streams, every decision identical" in out
    assert "cannot be told" not in out
    journal = tmp_path / "r/journal/task-Acrobot-v1-a1.jsonl"
    kept = journal.rename(tmp_path / "kept")
    code, out, _ = command("replay", "r").end()
    assert code == 1
    assert out.splitlines()[-1].startswith("LOST task-Acrobot-v1-a1: 0 of at least ")
    kept.rename(journal)
    code, _, err = command(*words).end()
    assert code == 2
    assert all(choice in err for choice in ("resume", "restart", "overwrite"))


@pytest.mark.parametrize("n_signals", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_and_resume(command, tmp_path, n_signals):
    """Ctrl-C once stops with a checkpoint, twice at once; both exit 130, leave nothing, and the run can go on."""
    running = command("train", "CartPole-v1", "--gpus", "1", "--total-timesteps", "20000", "--out", "r")
    running.until(lambda: _rounds(tmp_path / "r") >= 5, "5 rounds")
    for _ in range(n_signals):
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    code, out, err = running.end()
    assert code == 130, out + err
    assert "drlnb resume" in out + err
    if n_signals == 1:
        assert (tmp_path / "r" / "checkpoints" / "CartPole-v1" / "LATEST").is_file()
    code, out, err = command("resume", "r").end()
    assert code == 0, out + err
    code, out, err = command("replay", "r").end()
    assert code == 0, out + err


def test_kill_of_the_command_loses_nothing_and_leaves_nothing(command, tmp_path):
    """SIGKILL of the command saves its run and ends its cluster; a resume waits for that, and loses no round."""
    running = command("train", "CartPole-v1", "--gpus", "1", "--total-timesteps", "20000", "--out", "r")
    running.until(lambda: _rounds(tmp_path / "r") >= 5, "5 rounds")
    running.process.kill()
    code, out, err = command("resume", "r").end()
    assert code == 0, out + err
    running.end()
    before, after = Journal.read(tmp_path / "r").of(TaskOpened)
    assert (before.n_rounds, after.attempt) == (0, 2)
    rounds = [row.round for row in Journal.read(tmp_path / "r").of(MetricsRecorded)]
    assert rounds == list(range(1, len(rounds) + 1))
    code, out, err = command("replay", "r").end()
    assert code == 0, out + err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_run_rests_while_its_disk_is_full(command, tmp_path):
    """A line says so, without a traceback; when there is room it goes on: no work is lost, nothing of the journal."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    try:
        # The journal alone is larger than what is left, however fast the machine trains.
        (small / "filler").write_bytes(bytes(8 * 2**20 - 300 * 1024))
        running = command("train", "CartPole-v1", "--gpus", "1", "--total-timesteps", "60000", "--out", "small/r")
        resting = "paused: no checkpoint can be written (No space left on device)"
        running.until(lambda: resting in (tmp_path / "stdout.txt").read_text(), "a pause")
        (small / "filler").unlink()
        code, out, err = running.end()
        assert code == 0, out + err
        assert "a checkpoint cannot be written (No space left on device): the task rests" in out + err
        assert "Traceback" not in out + err
        assert json.loads((small / "r/status.json").read_text())["state"] == "done"
        code, out, err = command("replay", "small/r").end()
        assert code == 0, out + err
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("train", "CartPole-v9", "--gpus", "1"), "CartPole-v1"),
        (("train", "Blackjack-v1", "--gpus", "1"), "Tuple"),
        (("train", "CartPole-v1", "--gpus", "99"), "the cluster has"),
        (("train", "CartPole-v1", "--client", "tcp://127.0.0.1:9"), "no scheduler answers"),
        (("train", "CartPole-v1", "--gpus", "1", "--out", "/proc/x"), "/proc/x"),
    ],
)
def test_wrong_input_is_one_line(command, tmp_path, words, expected):
    """What only a cluster can know is refused with one line on stderr, exit code 2, no run directory, nothing left."""
    began = time.monotonic()
    code, _, err = command(*words).end()
    assert code == 2
    assert time.monotonic() - began < LIMIT_S
    lines = [line for line in err.splitlines() if line.startswith("drlnb: ") and "no CUDA device" not in line]
    assert len(lines) == 1
    assert expected in lines[0]
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()
