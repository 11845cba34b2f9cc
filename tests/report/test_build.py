"""One file, nothing from outside, nothing of the author's machine, no half file."""

import base64
import getpass
import io
import json
import re
import socket
import sys
import tarfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from drlnb.cli import report as command
from drlnb.fleet.tasks.planners import chosen
from drlnb.fleet.tasks.run_spec import run_spec
from drlnb.records import round
from drlnb.records.columns import leasing, swapping, warmup
from drlnb.records.errors import ConfigError, InputError, JournalError
from drlnb.records.journal import Anew, Journal, line_of
from drlnb.report import build, download
from drlnb.report.build import _label
from drlnb.report.download import Names, scrub
from drlnb.report.page import CSP
from tests.fleet.conftest import small_task
from tests.report.verify import verify
from tests.views.journals import Run, two_tasks

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


def write_run(directory, run, spec=None):
    (directory / "journal").mkdir()
    for name, (header, records) in run.streams.items():
        text = "".join(line_of(record) for record in (header, *records))
        (directory / "journal" / f"{name}.jsonl").write_text(text, encoding="utf-8")
    if spec is not None:
        (directory / "run.json").write_text(json.dumps(spec), encoding="utf-8")
    return directory


def data_of(page):
    blocks = re.findall(r'<script type="application/json" data-drlnb="view-(\w+)">(.*?)</script>', page, re.DOTALL)
    return {name: json.loads(text, parse_constant=pytest.fail) for name, text in blocks}


def test_a_report_is_one_file_that_asks_for_nothing(tmp_path):
    """The policy stands before the scripts, every section is there, and the numbers are the views'."""
    target = tmp_path / "out.html"
    made = build(two_tasks().journal(), target)
    text = target.read_text(encoding="utf-8")
    assert made == (target, len(text.encode()))
    assert text.index(CSP) < text.index("<script")
    assert list(data_of(text)) == [
        "tasks", "leases", "shares", "learning", "rounds",
    ]  # fmt: skip
    assert "img-src data:;" in CSP
    assert "held 80 %, computing 40 %" in text
    assert data_of(text)["leases"]["header"]["origin"] == "measured"
    assert text.count("<noscript><svg") == 4, "tables stand there as text"
    assert text.count("<noscript>") == 5
    assert verify(target).offline


@pytest.mark.thorough
def test_four_tasks_of_400_rounds_stay_below_500_kb(tmp_path):
    """The bar of the first look."""
    run = Run().slot()
    t = 0.0
    for name in "abcd":
        run.task(name, total=4000)
    for n in range(400):
        for name in "abcd":
            run.lease(name, t, t + 0.1, t + 0.4, computed=0.25, n=n)
            run.metrics(
                name,
                t + 0.4,
                n + 1,
                10 * n,
                rollout__ep_rew_mean=float(n),
                round__time_s=1.0,
                round__collect_s=0.5,
                round__wait_lease_s=0.1,
                round__update_s=0.3,
                round__push_s=0.0,
                round__control_s=0.1,
            )
            t += 0.5
    assert build(run.journal(), tmp_path / "big.html").n_bytes <= 500_000


def warm_run(n_tasks, n_rounds, n_candidates=2):
    """Tasks whose two collectors end after each round and start as planned, a little late."""
    run = Run().slot()
    names = [f"t{i}" for i in range(n_tasks)]
    for name in names:
        run.task(name, total=10 * n_rounds)
    candidates = (*((0.1 * k, 0.01 * k, 1.0 - 0.01 * k) for k in range(n_candidates)), (None, 0.5, 0.0))
    t = 0.0
    for n in range(1, n_rounds + 1):
        for name in names:
            for collector in (0, 1):
                run.sent(
                    name, n, t + 0.01 * collector, collector, action="start", start_after_s=0.2, lead_s=0.1,
                    reason=f"saves 0.{n} s", candidates=() if collector else candidates,
                )  # fmt: skip
            run.lease(name, t + 0.05, t + 0.1, t + 0.4, computed=0.25, n=n)
            run.arrived(name, t + 0.45, n + 1).ready(name, t + 0.46, 0.2, 0).ready(name, t + 0.47, 0.25, 1)
            run.metrics(name, t + 0.48, n, 10 * n, round__time_s=1.0)
            t += 0.5
    return run


def test_warm_up_has_its_sections_once_per_task_where_it_is_one_tasks(tmp_path):
    """Waterfall and starts of all, history and curve of each."""
    build(warm_run(2, 4).journal(), tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert list(data_of(text))[5:] == ["warmup", "starts", "history0", "curve0", "history1", "curve1"]
    assert "<h2>t1: what another start would have cost</h2>" in text
    assert '<th scope="row">warm-up</th><td>16 starts: 0 % ready in time' in text
    assert "saves 0.4 s" in text


def test_where_nothing_is_started_warm_up_is_one_line(tmp_path):
    """Collectors that stay have no pictures of starts."""
    run = two_tasks().sent("a", 1, 9.0, end=None).arrived("a", 9.5, 2)
    build(run.journal(), tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "warmup" not in data_of(text)
    assert "collectors stay where they are between rounds: nothing is started" in text


def test_an_ended_regime_names_no_machine(tmp_path):
    """Its reason stands in a line's name: there, too, nodes go by number."""
    run = warm_run(1, 3).slot("gpu-box.lab/cpu0")
    run.say("task-t0-a1", warmup.WarmupRegimeEnded(round=2, n_kept=1, reason="nodes changed from gpu-box.lab to n0"))
    build(run.journal(), tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "gpu-box" not in text
    assert "nodes changed from node1 to n0" in text, "short names are no guide to a machine"


@pytest.mark.slow
def test_four_tasks_of_400_rounds_with_planned_starts_stay_below_500_kb(tmp_path):
    """The bar of the first look, with all of warm-up."""
    made = build(warm_run(4, 400, n_candidates=25).journal(), tmp_path / "big.html")
    assert made.n_bytes <= 500_000


def test_text_of_users_stays_text(tmp_path):
    """Names, errors and notes cannot end a script or make an element."""
    run = Run().slot().task(EVIL)
    run.lease(EVIL, 0.0, 0.0, 1.0)
    run.say(
        f"task-{EVIL}-a1", round.TaskFailed(t=2.0, reason=EVIL, detail=EVIL), round.EndTask(state="failed", reason=EVIL)
    )
    build(run.journal(), tmp_path / "out.html", notes=EVIL)
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert "<script>" not in text
    assert text.lower().count("</script>") == len(re.findall(r"<script[ >]", text))
    assert EVIL in data_of(text)["leases"]["header"]["series"][0]["name"]


def test_nothing_of_the_authors_machine(tmp_path):
    """No path, user, host or address, whatever the journal holds."""
    host, user = "gpu-box.lab.example", "ann"
    run = Run().slot(f"tcp://{host}:4000/cpu0").task("a")
    run.lease("a", 0.0, 0.0, 1.0, slot=f"tcp://{host}:4000/cpu0")
    run.say(
        "task-a-a1",
        round.TaskFailed(t=2.0, reason=f"File /home/{user}/lab/env.py broke at 10.0.0.7:4000", detail=""),
        round.EndTask(state="failed", reason=f"File /home/{user}/lab/env.py broke at 10.0.0.7:4000"),
    )
    spec = {"run": "r", "tasks": [{"name": "a", "env": f"/home/{user}/mine.py:Env-v0", "hyperparameters": {}}]}
    directory = write_run(tmp_path, run, spec)
    build(directory, tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    words = [host, f"/home/{user}", "10.0.0.7", str(tmp_path), f"/{getpass.getuser()}/"]
    assert [word for word in words if word in text] == []
    # As a word: two letters of a host's name may well stand in the middle of packed bytes.
    assert not re.search(rf"(?<![\w+/]){re.escape(socket.gethostname())}(?![\w+/])", text)
    assert "node0 cpu0" in text


def test_the_second_row_of_a_slot_has_no_name():
    """Where gangs share a slot; the first row has that of the slot, by its node's number."""
    names = Names(two_tasks().journal(), 1)
    labels = [_label({"label": label, "kind": "slot"}, names) for label in ("0/cpu0", "", "0/cpu1", "")]
    assert labels == ["node0 cpu0", "", "node0 cpu1", ""]


def saved(page, into):
    """Unpack what a click on the link saves."""
    link = re.search(r'<a download="journal.tar.gz"[^>]* href="data:application/gzip;base64,([^"]+)"', page)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(link[1]))) as tar:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not before Python 3.11.4
        tar.extractall(into, **safely)
    return into


def test_the_journal_comes_along(tmp_path):
    """Saved and unpacked it is a run's folder: the report that is made of it shows the same pictures."""
    build(two_tasks().journal(), tmp_path / "first.html")
    text = (tmp_path / "first.html").read_text(encoding="utf-8")
    again = saved(text, tmp_path / "saved")
    build(again, tmp_path / "second.html")
    assert data_of((tmp_path / "second.html").read_text(encoding="utf-8")) == data_of(text)


def test_a_saved_journal_names_no_machine(tmp_path):
    """Nodes by number, the same one everywhere; no address and no directory in any row."""
    run = Run().slot("gpu-box.lab/cpu0").slot("tcp://10.0.0.3:40/cpu0").task("a")
    run.lease("a", 0.0, 0.0, 1.0, slot="gpu-box.lab/cpu0")
    run.say("task-a-a1", round.TaskFailed(t=2.0, reason="lost gpu-box.lab", detail="/home/ann/env.py at 10.0.0.3:40"))
    build(run.journal(), tmp_path / "out.html")
    folder = saved((tmp_path / "out.html").read_text(encoding="utf-8"), tmp_path / "saved") / "journal"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.iterdir())
    assert [word for word in ("gpu-box", "/home", "10.0.0.3") if word in text] == []
    assert '"reason":"lost node0"' in text
    assert Journal.read(tmp_path / "saved").of(leasing.LeaseGranted)[0].slots == ("node0/cpu0",)


def test_a_journal_that_is_too_large_stays_out_and_its_rows_are_counted(tmp_path, monkeypatch):
    """The page keeps its limit and says how many rows there are, and where."""
    journal = two_tasks().journal()
    monkeypatch.setattr(sys.modules[build.__module__], "MAX_BYTES", 1000)
    build(journal, tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    n_rows = sum(1 + len(stream.records) for stream in journal.streams.values())
    assert f"The journal has {n_rows:,} rows: too many" in text
    assert "journal.tar.gz" not in text


def test_a_long_journal_is_read_once(tmp_path, monkeypatch):
    """A million rounds take minutes to read: only the pool's rows, which name the machines, are looked at again."""
    monkeypatch.setattr(download, "_MOST_ROWS", 10)
    monkeypatch.setattr(sys.modules[build.__module__], "MAX_BYTES", 1000)
    journal, n_reads = two_tasks().journal(), Counter()

    def read(stream):
        n_reads[stream.header.stream] += 1
        return iter(stream.records)

    counted = {name: replace(of, records=Anew(partial(read, of))) for name, of in journal.streams.items()}
    build(Journal(streams=counted), tmp_path / "out.html")
    assert n_reads == {name: 1 + (of.header.machine == "pool") for name, of in journal.streams.items()}


@pytest.mark.parametrize("text", ["3/4 of it", "rollout/ep_rew_mean", "n0/cpu0", "lin_0.001"])
def test_what_is_no_path_stays(text):
    """Metrics, slots and fractions are no paths."""
    assert scrub(text) == text


def test_notes_stand_below_the_summary(tmp_path):
    """Paragraphs are apart by empty lines."""
    build(two_tasks().journal(), tmp_path / "out.html", notes="One.\n\nTwo.")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<h2>Summary</h2><p>One.</p><p>Two.</p>" in text


def test_a_file_that_cannot_be_written_is_said_with_its_reason(tmp_path):
    """Path and reason, and no half file."""
    with pytest.raises(ConfigError, match=r"nowhere/out.html: No such file or directory"):
        build(two_tasks().journal(), tmp_path / "nowhere" / "out.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="folder"):
        build(two_tasks().journal(), tmp_path / "folder")
    with pytest.raises(ConfigError, match=r"^\.: "):
        build(two_tasks().journal(), Path())
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_failed_write_keeps_the_former_report(tmp_path, monkeypatch):
    """The disk is full: the old file stays whole, and no half one lies beside it."""
    target = tmp_path / "out.html"
    target.write_text("former", encoding="utf-8")

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        build(two_tasks().journal(), target)
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["former"]


def test_a_torn_journal_is_reported_as_far_as_it_can_be_read(tmp_path):
    """The page says that something was cut off."""
    build(two_tasks().journal(torn=True), tmp_path / "out.html")
    assert "the last line of 3 streams was cut off" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_the_command(tmp_path, capsys):
    """Prints path, bytes, and how many addresses it could ask."""
    directory = write_run(tmp_path, two_tasks(), {"run": "r1", "tasks": []})

    class Arguments:
        dir, out = directory, None

    assert command.run(Arguments) == 0
    n_bytes = (directory / "report.html").stat().st_size
    assert capsys.readouterr().out == f"{directory / 'report.html'}: {n_bytes:,} bytes\n"


@pytest.mark.parametrize("name", ["", "missing"])
def test_no_journal_is_the_callers_fault(tmp_path, name):
    """One line, exit code 2."""
    with pytest.raises(JournalError) as caught:
        build(tmp_path / name, tmp_path / "out.html")
    assert isinstance(caught.value, InputError)


def test_what_rules_cannot_do_is_said(tmp_path):
    """Where it was said as the run began nobody may have looked: patents' rules, and a budget that moves nothing."""
    spec = run_spec([replace(small_task(), name="a", n_learners=2, n_collectors=2, n_envs=2)], chosen("patent"))
    run = two_tasks()
    for name in "ab":
        run.say(f"task-{name}-a1", swapping.SwapUnavailable(reason="its gradient is written out"))
    build(write_run(tmp_path, run, spec.to_plain()), tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert '<th scope="row">swapping</th><td>a, b: its gradient is written out</td>' in text
    said = "a waits for all 2 learners, and leaves no sample out: the shares of a round stay whole"
    assert text.count(said) == 1
    assert "a are parked between rounds, not ended" in text
    plain = replace(spec, patent=False).to_plain()
    (tmp_path / "run.json").write_text(json.dumps(plain), encoding="utf-8")
    build(tmp_path, tmp_path / "out.html")
    assert said not in (tmp_path / "out.html").read_text(encoding="utf-8")
