"""What a process prints is held to a bound, and the user hears of it."""

import os
import select
import sys

import pytest

from drlnb.runtime.ipc import lifeline
from drlnb.runtime.ipc.lifeline import bound_output, is_flooded
from drlnb.runtime.ipc.start_modes import ChildProcess, child_environment
from drlnb.runtime.master.master import flooded_logs


def test_a_log_that_has_grown_too_large_keeps_its_newest_lines(tmp_path, monkeypatch):
    """Whole ones, behind a line that says so; what is printed next stands behind them."""
    monkeypatch.setattr(lifeline, "_LOG_BYTES", 100)
    monkeypatch.setattr(lifeline, "_KEPT_BYTES", 25)
    log = tmp_path / "a-0.log"
    with log.open("ab", buffering=0) as output:
        output.write(b"123456789\n" * 10)
        bound_output(output.fileno())
        assert log.stat().st_size == 100
        assert not is_flooded(log)
        output.write(b"the last\n")
        bound_output(output.fileno())
        output.write(b"more\n")
    assert log.read_bytes() == lifeline._FLOODED + b"123456789\nthe last\nmore\n"
    assert is_flooded(log)


def test_what_is_no_log_is_left_alone(tmp_path, monkeypatch):
    """A terminal or a pipe has no size."""
    monkeypatch.setattr(lifeline, "_LOG_BYTES", -1)
    reads, writes = os.pipe()
    bound_output(writes)
    os.write(writes, b"x")
    assert os.read(reads, 9) == b"x"
    os.close(reads)
    os.close(writes)
    assert not is_flooded(tmp_path / "nowhere")


def test_flooded_logs_are_those_of_the_task(tmp_path):
    """On whichever node; a task whose name begins alike has its own."""
    for name in ("n0/a-0.log", "n1/a-replay.log", "n0/a-2-0.log", "n0/a-1.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"quiet" if name == "n0/a-1.log" else lifeline._FLOODED)
    assert sorted(flooded_logs(tmp_path, "a")) == [tmp_path / "n0/a-0.log", tmp_path / "n1/a-replay.log"]


@pytest.mark.thorough
def test_a_child_that_prints_for_ever_fills_no_disk(tmp_path, monkeypatch):
    """A real one, as fast as it can: its log is cut again and again, and it goes on."""
    module = "import os, sys\nwhile True: os.write(1, b'x' * 9999 + b'\\n')"
    (tmp_path / "noisy.py").write_text(module)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    log = tmp_path / "a-0.log"
    child = ChildProcess.start("noisy", log=log, environment=child_environment())
    poller = select.poll()
    n_cuts = before = 0
    while n_cuts < 2 or not is_flooded(log):  # not yet, while it is being cut
        poller.poll(10)
        size = log.stat().st_size
        n_cuts, before = n_cuts + (size < before), size
    assert child.process.poll() is None
    child.kill()
    child.process.wait()
    child.sock.close()
