"""A rig of real processes: what it answers, and that nothing of it is left, however its bench ends."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.distribution.hub import Spec
from benchmarks.distribution.rig import NoRig, open_rig
from drlnb.runtime.client.local_cluster import wait_gone

N = 3


def interfaces():
    return {line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()}


def processes():
    """Return the processes of rigs, but for those of a test that runs beside this one."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    rigs = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if "benchmarks.distribution.hub" in (process.info["cmdline"] or ()):
                rigs += [process] if process.environ().get("PYTEST_XDIST_WORKER") == worker else []
    return rigs


@pytest.fixture(params=["loopback", "netns"])
def spec(request):
    """Return each kind of rig; the one of namespaces only where they can be made."""
    spec = Spec(kind=request.param, n_hosts=N, rate_mbit=200.0)
    if spec.shaped:
        try:
            with open_rig(Spec(kind="netns", n_hosts=1, rate_mbit=200.0)):
                pass
        except NoRig as error:
            pytest.skip(str(error))
    return spec


@pytest.mark.cluster
def test_a_rig_answers_and_leaves_nothing(spec):
    """A copy to all hosts takes as long as the links say; a hub that dies is an error that says so."""
    before, others = interfaces(), processes()
    with open_rig(spec) as rig:
        members = [process for process in processes() if process not in others]
        assert len(members) == 1 + 1 + N
        assert interfaces() == before
        took_s = rig.ask("scatter", n_bytes=1_000_000)["publish_s"]
        assert took_s >= (2 * 0.04 * 0.7 if spec.shaped else 0.0), "two hops at least, each 40 ms but for the burst"
        rig.process.kill()
        with pytest.raises(RuntimeError, match=r"^scatter: "):
            rig.ask("scatter", n_bytes=1_000)
    assert wait_gone(members, 10.0) == []
    assert interfaces() == before


_BENCH = """
import sys
from benchmarks.distribution.hub import Spec
from benchmarks.distribution.rig import open_rig
with open_rig(Spec(kind=sys.argv[1], n_hosts=3, rate_mbit=200.0)):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.mark.cluster
def test_a_killed_bench_leaves_no_rig(spec, tmp_path):
    """SIGKILL, which nobody can catch: every process is gone in a moment, and with them the namespaces."""
    before, others = interfaces(), processes()
    bench = subprocess.Popen(
        [sys.executable, "-c", _BENCH, spec.kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with bench:
        assert bench.stdout.readline() == b"up\n"
        members = [process for process in processes() if process not in others]
        assert len(members) == 1 + 1 + N
        os.kill(bench.pid, signal.SIGKILL)
    assert wait_gone(members, 10.0) == []
    assert interfaces() == before


@pytest.mark.cluster
def test_a_machine_that_does_not_allow_it_is_told_so(monkeypatch):
    """Without `ip` there is no network to make; the reason is the row's."""
    if os.geteuid():
        pytest.skip("it takes root to come as far as `ip`")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoRig, match="ip"), open_rig(Spec(kind="netns", n_hosts=1, rate_mbit=200.0)):
        pass
