"""The arguments of ``drlnb bench runtime``, its course over groups of rows, and two cheap rows for real."""

import contextlib
import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from drlnb.bench import groups, messages, runtime, training
from drlnb.bench.report import Bar, Row
from drlnb.bench.stage import survivors, virtual_devices
from drlnb.records import round as words
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.records.journal import Stream, StreamOpened

FENCE = Fence(epoch=1, token=1)


# ------------------------------------------------------------------ arguments
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--rows", "hop"], r"unknown row 'hop' \(did you mean hops\?\); known: hops, handover"),
        (["--rows", "hops,zzz,yyy"], "unknown row 'zzz'; known.*unknown row 'yyy'"),
        (["--rows", ","], "--rows names no row"),
        (["--repeats", "0"], "--repeats must be >= 1, got 0"),
        (["--repeats", "some"], "argument --repeats: invalid int value: 'some'"),
        (["--steps", "-5"], "--steps must be >= 1, got -5"),
        (["--rowz", "hops"], "unrecognized arguments: --rowz"),
        (["--json", "/nowhere/at/all.json"], "/nowhere/at/all.json cannot be written"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(monkeypatch, argv, message):
    """Each is the person's to mend, and is told with the value that they gave."""
    monkeypatch.setattr(groups, "measure", lambda *_: pytest.fail("a row was measured"))
    with pytest.raises(ConfigError, match=message):
        runtime.main(argv)


def test_every_group_can_be_found():
    """Each name leads to a function of its module."""
    for module, function in runtime.GROUPS.values():
        assert callable(getattr(__import__(module, fromlist=[function]), function))


# ------------------------------------------------------------------ course
@pytest.fixture
def fake_groups(monkeypatch):
    """Replace the groups by two that cost nothing; return the efforts that they were asked for."""
    efforts = []

    def good(effort):
        efforts.append(effort)
        return (Row(id="good", what="a good one", samples=(2.0,), bar=Bar("value", 1.0)),)

    def bad(effort):
        efforts.append(effort)
        raise TimeoutError("it never came")

    monkeypatch.setattr(messages, "good", good, raising=False)
    monkeypatch.setattr(messages, "bad", bad, raising=False)
    monkeypatch.setattr(runtime, "GROUPS", {name: ("drlnb.bench.messages", name) for name in ("good", "bad")})
    return efforts


def test_chosen_rows_are_measured_with_the_effort_asked_for(fake_groups, tmp_path, capsys):
    """One group asked for is one group measured; its row is printed and written."""
    path = tmp_path / "rows.json"
    words_ = ["--rows", "good", "--repeats", "7", "--steps", "9", "--quick", "--json", str(path)]
    assert runtime.main(words_) == 0
    assert fake_groups == [runtime.Effort(repeats=7, steps=9, quick=True)]
    assert [row["id"] for row in json.loads(path.read_text())["rows"]] == ["good"]
    said = capsys.readouterr().out
    assert "good: a good one" in said
    assert "0 of 1 bars hold; missed: good" in said


def test_a_missed_bar_fails_only_strict(fake_groups):
    """2 s against a bar of 1 s: data without --strict, exit 1 with it."""
    assert runtime.main(["--rows", "good", "--strict"]) == 1


def test_a_group_that_breaks_takes_no_other_along(fake_groups, tmp_path, capsys):
    """It becomes a row that says what happened, and the exit code says that not all could be measured."""
    path = tmp_path / "rows.json"
    assert runtime.main(["--json", str(path)]) == 1
    assert [row["id"] for row in json.loads(path.read_text())["rows"]] == ["good", "bad"]
    assert "not measured: TimeoutError: it never came" in capsys.readouterr().out


# ------------------------------------------------------------------ pure parts of the rows
def test_gaps_are_between_holders_not_within_one():
    """Three holds a, b, b after the warm ones: only a -> b counts, from its release to the next grant."""
    warm = [(i, "ab"[i % 2], float(i), i + 0.5) for i in range(messages._WARM + 1)]
    holds = [*warm, (5, "b", 5.0, 5.4), (6, "b", 5.5, 5.9), (7, "a", 6.1, 6.4), (8, "b", 7.0, 7.1)]
    assert messages._gaps(holds[::-1]) == pytest.approx([0.5, 0.2])


def test_control_is_split_at_the_journals_events():
    """A round by hand: acting 2 of 3 s, 1 s for the lease of which 0.4 queued, 4 s computing of 5, 0.5 s publishing."""
    events = [
        HostCompleted(t=1.0, host="0", version=1, publish_s=0.0),
        words.ExperienceArrived(
            t=4.0,
            collector=0,
            round=1,
            attempt=1,
            version=1,
            n_samples=1,
            n_bytes=1,
            key="k",
            collect_s=2.0,
            episodes=(),
        ),
        words.LeaseReceived(t=5.0, request_id="r", fence=FENCE, slots=("s",), waited_s=0.4),
        words.GradientComputed(t=6.0, collector=0, round=1, fence=FENCE, elapsed_s=0.5),
        words.ParametersReady(t=10.0, round=1, fence=FENCE, elapsed_s=3.5, n_bytes=1, key="k", metrics={}),
        HostCompleted(t=10.5, host="0", version=2, publish_s=0.5),
    ]
    header = StreamOpened(stream="s", machine="round", config={}, origin="measured", version="0")
    stream = Stream(header=header, records=tuple(events), torn=False, source="here")
    (one,) = training.round_hops(stream)
    assert one == pytest.approx({"collect": 1.0, "lease": 0.6, "compute": 1.0, "publish": 0.5})


def test_devices_are_hidden_only_meanwhile(monkeypatch):
    """What the person had set is there again afterwards, also when it was nothing."""
    for before in ("1", None):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if before is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
        with virtual_devices():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


@pytest.fixture
def parent():
    """Start a process with a child that outlives it; kill both at the end."""
    process = subprocess.Popen(["/bin/sh", "-c", "sleep 30 & echo; wait"], stdout=subprocess.PIPE)
    process.stdout.readline()
    children = psutil.Process(process.pid).children()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=3.0)


def test_a_zombie_does_not_survive(parent):
    """Killed and not yet reaped is dead."""
    process = psutil.Process(parent.pid)
    parent.kill()
    deadline = time.monotonic() + 5.0
    while survivors([process]) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert survivors([process]) == []


# ------------------------------------------------------------------ for real
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_two_cheap_rows_for_real(tmp_path):
    """Messages and starts are measured on real processes, in the form of every bench; nothing is left running."""
    path = tmp_path / "rows.json"
    code = "import sys; from drlnb.bench.runtime import main; sys.exit(main(sys.argv[1:]))"
    argv = ["--rows", "hops,startup", "--repeats", "1", "--json", str(path)]
    process = subprocess.Popen([sys.executable, "-c", code, *argv], stdout=subprocess.PIPE, start_new_session=True)
    seen = set()
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            seen.update(psutil.Process(process.pid).children(recursive=True))
        time.sleep(0.05)
    process.stdout.close()
    assert process.returncode == 0
    assert survivors(list(seen)) == []
    rows = {row["id"]: row for row in json.loads(path.read_text())["rows"]}
    assert {"hops", "startup-v-torch", "startup-v-spawn", "startup-4-v-torch", "startup-4-v-spawn"} <= rows.keys()
    assert all(0 < rows[name]["ratio"] < 1 for name in rows if rows[name]["baseline"])
