"""A run is watched again in the terminal."""

import pytest

from drlnb.cli.main import main
from drlnb.records.journal import line_of
from drlnb.records.spec import RlWork
from drlnb.runtime.files.run_directory import RunDir
from tests.fleet.test_playback import rounds


@pytest.fixture
def out(tmp_path):
    """Write the directory of a run of 5 s with one task."""
    folder = RunDir(tmp_path / "run")
    spec = RlWork(name="a", env="CartPole-v1", total_timesteps=500, n_envs=1)
    folder.create({"run": "r1", "tasks": [spec.to_plain()]})
    text = "".join(map(line_of, rounds("a", first_t=0.0, n=5)))
    (folder.journal / "task-a-a1.jsonl").write_text(text, encoding="utf-8")
    return folder.path


@pytest.mark.parametrize("speed", ["all", "1000"])
def test_it_ends_with_the_summary_of_the_run(out, capsys, speed):
    """The tasks' lines, the table, and how to see it in a notebook; nothing in the directory is touched."""
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert main(["play", str(out), "--speed", speed]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "recording of run r1, 5 s; nothing is trained"
    assert any(line.startswith("a  100%") and line.endswith("done") for line in lines)
    assert any(line.split()[:3] == ["a", "done", "500"] for line in lines)
    assert lines[-1] == f"in a notebook, with pictures: drlnb.play({str(out)!r})"
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--speed", "0"], "must be a number from 1e-9 to 1e9, or all, got '0'"),
        (["--speed", "fast"], "must be a number from 1e-9 to 1e9, or all, got 'fast'"),
        (["--sped", "2"], "unknown option --sped; did you mean '--speed'?"),
    ],
)
def test_wrong_words_are_refused(out, capsys, words, said):
    """One line, exit code 2."""
    assert main(["play", str(out), *words]) == 2
    assert said in capsys.readouterr().err


def test_what_is_no_run_is_refused(tmp_path, capsys):
    """One line that names the folder, exit code 2."""
    assert main(["play", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"drlnb: {tmp_path} holds no run of drlnb (no run.json)\n"
