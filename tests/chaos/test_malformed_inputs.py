"""Malformed input of every kind is refused in one line: no traceback, no hang, no file that is not ours is touched."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drlnb.cli import main as cli
from drlnb.fleet.cluster import pool
from drlnb.fleet.tasks.planners import chosen
from drlnb.fleet.tasks.run_spec import run_spec
from drlnb.fleet.tasks.task import Task
from drlnb.records.errors import InputError, PeerError
from drlnb.records.journal import Journal
from drlnb.records.kinds import first_wrong
from drlnb.runtime.files.run_directory import RunDir
from tests.chaos import inputs
from tests.fleet.conftest import small_task

#: Inputs of each kind per test; nightly a few ten thousands of each.
N = 3_125 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 94
SEEDS = range(8)
#: Commands that read a line and files; the others open servers or measure for minutes.
COMMANDS = ("train", "resume", "runs", "replay", "report", "play")
#: Longest that one input may take, in seconds: no more than a minute of processor time of a busy machine.
HANGS_S = 60
JOURNALS = Path(__file__).parents[1] / "journals" / "two-tasks-one-slot"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with a run, somebody's files beside and inside it; no cluster is ever started or asked."""

    def not_started(*_, **__):
        raise PeerError("local cluster", "the input was good enough to start one")

    monkeypatch.setattr(pool, "start_cluster", not_started)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.csv").write_text("1,2,3")
    run = RunDir(tmp_path / "run")
    run.create(run_spec([small_task()], chosen("auto")).to_plain())
    shutil.copytree(JOURNALS, tmp_path / "run" / "journal", dirs_exist_ok=True)
    before = signal.signal(signal.SIGALRM, _hangs)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _hangs(_number, _frame):
    raise AssertionError(f"no answer within {HANGS_S} s")


def digest(folder):
    """Return what the files of others hold."""
    return [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("thesis.tex", "mine/data.csv")]


def answered(words, capfd):
    """Run a command line here; it must end in time, and wrong input with one line that is the last."""
    signal.alarm(HANGS_S)
    code = cli.main(words)
    signal.alarm(0)
    said = capfd.readouterr().err
    assert code in {0, 1, 2}, words
    assert "Traceback" not in said, (words, said)
    assert "--debug shows where" not in said, (words, said)
    if code == 2:
        *others, last = said.strip().splitlines()
        assert last.startswith("drlnb: "), (words, said)
        assert len(others) <= 1, (words, said)  # a note on what is used instead, before
    return code


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_command_lines(folder, capfd, seed):
    """Words put in, left out, doubled, swapped and garbled."""
    before, codes = digest(folder), set()
    for words in inputs.commands(seed, N, COMMANDS, folder / "run"):
        codes.add(answered([word.replace("\x00", "") for word in words], capfd))
        assert digest(folder) == before, words
    assert 2 in codes


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_arguments_of_python(seed):
    """Errors are those for wrong values and types, in one line that names something; nothing else comes out."""
    n_refused = 0
    for given in inputs.keywords(seed, N):
        said = refused(given)
        n_refused += said is not None
        assert said is None or said.strip(), given
        assert said is None or len(said.splitlines()) <= 1 + len(given), (given, said)
    assert n_refused > N / 2


def refused(given):
    """Return what a task with these arguments is refused with, None if it is not."""
    try:
        Task("CartPole-v1", **given)
    except (InputError, TypeError, ValueError) as error:
        return str(error)
    return None


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_journals(folder, capfd, seed):
    """A damaged stream is refused, or read as far as it goes; most kinds of damage are found."""
    codes = []
    stream = sorted((folder / "run" / "journal").glob("*.jsonl"))[seed % 3]
    for data in inputs.damaged(seed, N, stream.read_bytes()):
        broken = folder / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        broken.mkdir()
        (broken / stream.name).write_bytes(data)
        codes.append(answered(["replay", str(broken)], capfd))
    assert codes.count(0) < len(codes) / 2


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_values_of_a_wrong_kind_in_a_journal(folder, capfd, seed):
    """Any field of any record: who reads it names the field, or can do without it."""
    draw, journal = random.Random(seed), folder / "run" / "journal"
    named = 0
    for _ in range(8 if N < 1000 else 200):
        shutil.rmtree(journal)
        shutil.copytree(JOURNALS, journal)
        path = draw.choice(sorted(journal.glob("*.jsonl")))
        lines = path.read_text().splitlines()
        at = draw.randrange(len(lines))
        row = json.loads(lines[at])
        row[draw.choice([key for key in row if key not in "kr"])] = draw.choice([None, "x", [1], {"a": 1}, True, -1.5])
        lines[at] = json.dumps(row)
        path.write_text("\n".join(lines) + "\n")
        run = str(folder / "run")
        for words in (["replay", run], ["play", run, "--speed", "all"], ["report", run]):
            answered(words, capfd)
        named += bool(first_wrong(Journal.read(folder / "run")))
    assert named
    assert not first_wrong(Journal.read(JOURNALS))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_files_of_a_run(folder, capfd, seed):
    """A damaged ``run.json`` is refused by every command that needs it, and stays as it is."""
    path = folder / "run" / "run.json"
    whole = path.read_bytes()
    for number, data in enumerate(inputs.damaged(seed, N, whole)):
        path.write_bytes(data)
        run = str(folder / "run")
        words = (["resume", run], ["play", run, "--speed", "all"], ["runs", "list", str(folder)], ["report", run])
        answered(list(words[number % 4]), capfd)
        assert path.read_bytes() == data
    path.write_bytes(whole)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_real_commands(folder):
    """The same as processes of their own: exit code and one line, as a shell sees them."""
    for words in inputs.commands(99, 2_000, ("resume", "runs", "replay", "report"), folder / "run"):
        command = [sys.executable, "-m", "drlnb.cli.main", *(word.replace("\x00", "") for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
        assert done.returncode in {0, 1, 2}, words
        assert "Traceback" not in done.stderr, (words, done.stderr)
        assert "--debug shows where" not in done.stderr, (words, done.stderr)
