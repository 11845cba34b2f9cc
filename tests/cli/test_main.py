import subprocess
import sys

import pytest

import drlnb
from drlnb.cli import main as module
from drlnb.cli.main import main


@pytest.fixture
def boom(monkeypatch):
    monkeypatch.setitem(module._COMMANDS, "boom", "tests.cli.boom")


@pytest.mark.parametrize(
    ("kind", "code", "line"),
    [
        ("input", 2, "drlnb: a is wrong; b, too\n"),
        ("training", 1, "drlnb: task a failed: it broke\n"),
        ("peer", 1, "drlnb: scheduler: did not answer\n"),
        ("defect", 1, "drlnb: ZeroDivisionError: division by zero (--debug shows where)\n"),
        ("ctrl-c", 130, "drlnb: stopped\n"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(boom, capsys, kind, code, line):
    """Wrong input is 2, a failure 1, Ctrl-C 130; nothing but the line is on standard error, nothing on output."""
    assert main(["boom", kind]) == code
    assert capsys.readouterr() == ("", line)


def test_debug_shows_the_traceback_before_the_line(boom, capsys):
    """The last line stays the same."""
    assert main(["boom", "defect", "--debug"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "drlnb: ZeroDivisionError: division by zero (--debug shows where)"


def test_a_command_that_is_done_exits_with_0(boom, capsys):
    """What it printed is on standard output."""
    assert main(["boom", "fine"]) == 0
    assert capsys.readouterr() == ("fine\n", "")


def test_version_and_help_exit_with_0(capsys):
    """Both are asked for, neither is an error."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"drlnb {drlnb.__version__}\n"
    assert main(["--help"]) == 0
    assert "train tasks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["zzz"],
         "unknown command 'zzz'; known are train, resume, runs, replay, report, play, simulate, lab, doctor"),
        (["train"], "the following arguments are required: ENV (see: drlnb train --help)"),
        (["train", "A", "--gpu", "1"], "unknown option --gpu; did you mean '--gpus'? (see: drlnb train --help)"),
        (["train", "A", "--gpus=0"],
         "argument --gpus: must be a whole number in 1..1000 or devices such as cuda:0,cuda:2, got '0' "
         "(see: drlnb train --help)"),
        (["train", "A", "--gpus", "0,2"],
         "argument --gpus: must be a whole number in 1..1000 or devices such as cuda:0,cuda:2, got '0,2' "
         "(see: drlnb train --help)"),
        (["train", "A", "--gpus", "cuda:0,cuda:0"],
         "argument --gpus: names cuda:0 twice (see: drlnb train --help)"),
        (["train", "A", "--gpus", "cuda:0,"],
         "argument --gpus: lists devices as 'cuda:0', 'GPU-<uuid>', 'cpu:0' or 'NODE/gpu0', got '' "
         "(see: drlnb train --help)"),
        (["resume", "A", "--gpus", "cpu:1,cuda:0"],
         "argument --gpus: mixes CUDA devices (cuda:0) with virtual ones (cpu:1): name one kind "
         "(see: drlnb resume --help)"),
        (["train", "A", "--algo", "pppo"], "unknown --algo 'pppo'; did you mean 'ppo'?"),
        (["train", "A", "--hyper", "B"], "--hyper takes KEY=VALUE, got 'B' (name environments before --hyper)"),
        (["train", "A", "--hyper", "seed=3"], "seed is not a hyper-parameter; give it as --seed"),
        (["train", "A", "--hyper", "gamma=2"], "gamma must be a number from 0 to 1, got 2"),
        (["train", "A", "--hyper", "n_step=3"], "unknown hyper-parameter 'n_step'; did you mean 'n_steps'?"),
        (["train", "A", "--planners", "hold=x"], "hold planner must be one of round, yield, last, got 'x'"),
        (["train", "A", "--client", "h:1", "--workers", "2"],
         "--workers is for the local cluster, not for the one at --client"),
        (["train", "A", "--on-existing", "keep"],
         "unknown --on-existing 'keep'; known are error, resume, restart, overwrite"),
        (["runs", "stop"], "runs stop needs RUN: a run id, or the directory of a run"),
        (["runs", "stop", "r9"], "r9 is no run directory; for a run id name its cluster with --client ADDRESS"),
        (["bench", "runtime", "--quick"],
         "benchmarks are not in the package: run 'python -m benchmarks NAME' in a checkout of drlnb"),
        (["simulate", "trains"], "unknown WHAT 'trains'; did you mean 'train'?"),
        (["replay", "a", "b"], "unexpected 'b'"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_answered_with_the_nearest_name(capsys, argv, message):
    """One line on standard error, exit code 2, nothing started."""
    assert main(argv) == 2
    assert capsys.readouterr() == ("", f"drlnb: {message}\n")


def test_a_directory_in_use_is_refused_before_anything_is_started(capsys, tmp_path):
    """The folder of something else is left alone."""
    (tmp_path / "photo.jpg").write_text("x")
    assert main(["train", "CartPole-v1", "--out", str(tmp_path)]) == 2
    assert "is not empty and holds no run of drlnb (found photo.jpg)" in capsys.readouterr().err


def test_resume_needs_a_run(capsys, tmp_path):
    """An empty directory holds none."""
    assert main(["resume", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"drlnb: {tmp_path} holds no run of drlnb (no run.json)\n"


def test_the_command_line_starts_without_torch_and_dask():
    """Help must be there at once, so no heavy package is imported before a command runs."""
    code = "import sys, drlnb.cli.main as m; m.build_parser(); print([k for k in ('torch', 'numpy', 'distributed', "
    code += "'gymnasium', 'dask') if k in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
