"""Scalars reach their sinks in order; a sink that breaks, hangs or is slow stops nothing but itself."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.records.errors import ConfigError, MissingExtra
from drlnb.rl.tracking.sink_threads import Feed
from drlnb.rl.tracking.sinks import Recorder, RunFacts, sinks_of

SPEC = {
    "name": "a",
    "env": "CartPole-v1",
    "algo": "ppo",
    "seed": 3,
    "hyperparameters": {"gamma": 0.9, "policy_kwargs": {}},
}


class Kept:
    """A sink that remembers."""

    def __init__(self):
        self.calls = []

    def open(self, facts):
        self.calls.append(("open", facts.run_id, tuple(facts.tasks)))

    def scalars(self, task, step, metrics):
        self.calls.append((task, step, dict(metrics)))

    def close(self):
        self.calls.append("close")


class Broken(Kept):
    """A sink that raises where it is told to."""

    def __init__(self, where):
        super().__init__()
        self._where = where

    def _maybe(self, where):
        if where == self._where:
            raise RuntimeError(f"no {where} today\nmore lines")

    def open(self, facts):
        super().open(facts)
        self._maybe("open")

    def scalars(self, task, step, metrics):
        super().scalars(task, step, metrics)
        self._maybe("scalars")

    def close(self):
        super().close()
        self._maybe("close")


@pytest.fixture
def facts(tmp_path):
    return RunFacts(run_id="r1", out=tmp_path, tasks={"a": SPEC})


def test_a_sink_hears_all_in_order_then_is_closed(facts):
    """Open, each row once and in order, close; texts, truth values and None are no scalars, nan is one."""
    sink = Kept()
    feed = Feed([sink], facts)
    feed.put("a", 10, {"train/loss": 1, "note": "text", "flag": True, "none": None})
    feed.put("a", 20, {"train/loss": float("inf")})
    feed.close()
    assert sink.calls == [
        ("open", "r1", ("a",)),
        ("a", 10, {"train/loss": 1.0}),
        ("a", 20, {"train/loss": float("inf")}),
        "close",
    ]
    assert feed.failures == ()


def test_rounds_that_are_made_again_are_not_written_twice(facts):
    """After a failure rounds come again with the same steps: each step is written once, an evaluation beside it."""
    sink = Kept()
    feed = Feed([sink], facts)
    for step in (1, 2, 3, 2, 3, 4):
        feed.put("a", step, {"x": step})
        feed.put("a", step, {"e": step}, kind="evaluation")
    feed.close()
    assert [call[1:] for call in sink.calls[1:-1]] == [
        (step, {key: step}) for step in (1, 2, 3, 4) for key in ("x", "e")
    ]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("open", "Broken failed at step 0 (RuntimeError: no open today); training goes on"),
        ("scalars", "Broken failed at step 1 (RuntimeError: no scalars today); training goes on"),
        ("close", "Broken could not be closed (RuntimeError: no close today); training goes on"),
    ],
)
def test_a_broken_sink_is_told_once_and_the_others_go_on(facts, where, told):
    """Whatever raises, there is one line about it, the sink is closed once, and its neighbour gets every row."""
    broken, good = Broken(where), Kept()
    feed = Feed([broken, good], facts)
    for step in range(1, 6):
        feed.put("a", step, {"x": step})
    feed.close()
    assert feed.failures == (told,)
    assert broken.calls.count("close") == 1
    assert [call[1] for call in good.calls[1:-1]] == [1, 2, 3, 4, 5]
    feed.put("a", 9, {"x": 9})
    assert good.calls[-1] == "close"


def test_a_sink_that_hangs_is_left_behind(facts):
    """Handing over never blocks, and the end waits no longer than it says; the good sink has everything."""
    release, inside = threading.Event(), threading.Event()

    class Hanging(Kept):
        def scalars(self, task, step, metrics):
            inside.set()
            release.wait()

    good = Kept()
    feed = Feed([Hanging(), good], facts)
    feed.put("a", 1, {"x": 1})
    assert inside.wait(5)
    feed.put("a", 2, {"x": 2})
    feed.close(timeout_s=0.01)
    assert feed.failures[0] == "Hanging did not finish within 0.01 s and was left behind"
    release.set()
    for worker in feed._workers:
        worker.join(5)
    assert [call[1] for call in good.calls[1:-1]] == [1, 2]


def test_a_slow_sinks_losses_are_counted(facts, monkeypatch):
    """A full queue drops rows instead of waiting, and says how many."""
    monkeypatch.setattr("drlnb.rl.tracking.sink_threads._MOST", 3)
    release, inside = threading.Event(), threading.Event()

    class Slow(Kept):
        def scalars(self, task, step, metrics):
            inside.set()
            release.wait()

    feed = Feed([Slow()], facts)
    feed.put("a", 0, {})
    assert inside.wait(5)  # one in hand, three fit behind it
    for step in range(1, 8):
        feed.put("a", step, {})
    release.set()
    feed.close()
    assert feed.failures == ("Slow was too slow: 4 rows of scalars were lost",)


def test_record_keeps_the_last_and_record_mean_averages():
    """Of three values between rows, ``record`` tells the last and ``record_mean`` the mean; then all is forgotten."""
    own = Recorder()
    for value in (1.0, 2.0, 6.0):
        own.record("last", value)
        own.record_mean("mean", value)
    own.record_mean("mean", None)
    assert own.dump() == {"last": 6.0, "mean": 3.0}
    assert own.dump() == {}
    own.record_mean("mean", 5.0)
    assert own.dump() == {"mean": 5.0}


def test_record_after_record_mean_begins_anew():
    """A key that is recorded plainly forgets its mean; averaging it again starts from the next value."""
    own = Recorder()
    own.record_mean("k", 1.0)
    own.record("k", 10.0)
    assert own.dump() == {"k": 10.0}
    own.record("k", 10.0)
    own.record_mean("k", 4.0)
    assert own.dump() == {"k": 4.0}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_the_mean_is_the_mean(values):
    """Averaging one by one is the sum over the count."""
    own = Recorder()
    for value in values:
        own.record_mean("k", value)
    assert own.dump()["k"] == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_what_track_takes():
    """Names, objects, or several of both; everything else is one error with all of it."""
    sink = Kept()
    assert sinks_of(None) == []
    assert sinks_of(sink) == [sink]
    assert sinks_of([sink, sink]) == [sink, sink]
    with pytest.raises(ConfigError) as caught:
        sinks_of(["tensorbord", 3])
    assert caught.value.problems == (
        "track takes tensorboard, wandb, mlflow or an object, got 'tensorbord'",
        "track: 3 has no open, scalars, close",
    )


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")])
def test_a_missing_library_is_a_pip_line(monkeypatch, name, module):
    """Where the library is not installed, the message is the pip line of the extra."""
    monkeypatch.setattr(
        "drlnb.rl.tracking.sinks.find_spec", lambda wanted: None if wanted == module else find_spec(wanted)
    )
    with pytest.raises(MissingExtra, match=rf'needs {module}; install it with: pip install "drlnb\[track\]"'):
        sinks_of(name)


def test_importing_sinks_loads_no_library():
    """Neither torch nor a tracking library is loaded before a sink is opened."""
    heavy = ("torch", "wandb", "mlflow", "tensorboard")
    code = f"import sys, drlnb.rl.tracking.sink_threads; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------ the real libraries, without a network
#: Writes two rows through a Feed; runs in a process of its own, because the libraries keep threads and processes.
_WRITE = """
    import sys
    from pathlib import Path
    from drlnb.rl.tracking.sink_threads import Feed
    from drlnb.rl.tracking.sinks import RunFacts, sinks_of
    out = Path(sys.argv[2])
    feed = Feed(sinks_of(sys.argv[1]), RunFacts(run_id="r1", out=out, tasks={"a": %r, "b": %r}))
    for step in (128, 256):
        feed.put("a", step, {"train/loss": step / 2, "train/explained_variance": float("nan")})
    feed.put("a", 256, {"eval/mean_reward": 7.0}, kind="evaluation")
    feed.put("b", 128, {"train/loss": 1.0})
    feed.close(60.0)
    assert feed.failures == (), feed.failures
"""


def written(name, out, env=None):
    code = textwrap.dedent(_WRITE) % (SPEC, SPEC)
    done = subprocess.run(
        [sys.executable, "-c", code, name, str(out)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "WANDB_MODE": "offline", **(env or {})},
    )
    assert done.returncode == 0, done.stderr
    return out


def needs(*modules):
    missing = [module for module in modules if find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed (extra track)")


@pytest.mark.slow
@needs("tensorboard")
def test_tensorboard_files_hold_the_scalars(tmp_path):
    """TensorBoard's own reader finds each task's scalars at their steps."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = written("tensorboard", tmp_path)
    reader = EventAccumulator(str(out / "tensorboard" / "a")).Reload()
    assert [(e.step, e.value) for e in reader.Scalars("train/loss")] == [(128, 64.0), (256, 128.0)]
    assert [(e.step, e.value) for e in reader.Scalars("eval/mean_reward")] == [(256, 7.0)]
    assert "settings/text_summary" in reader.Tags()["tensors"]
    other = EventAccumulator(str(out / "tensorboard" / "b")).Reload()
    assert [(e.step, e.value) for e in other.Scalars("train/loss")] == [(128, 1.0)]


@pytest.mark.slow
@needs("wandb")
def test_wandb_writes_offline_runs(tmp_path):
    """Without a network, each task is an offline run whose file holds its scalars, settings and group."""
    out = written("wandb", tmp_path)
    files = sorted(out.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2
    held = [file.read_bytes() for file in files]
    assert sum(b"eval/mean_reward" in text for text in held) == 1
    assert all(b"train/loss" in text and b"gamma" in text and b"r1" in text for text in held)


@pytest.mark.slow
@needs("mlflow")
def test_mlflow_writes_its_file_store(tmp_path):
    """Without a server, each task is a run of a local store; MLflow's own client reads metrics and settings back."""
    out = written("mlflow", tmp_path)
    code = """
        import json, os, sys
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        from pathlib import Path
        from mlflow.tracking import MlflowClient
        client = MlflowClient(tracking_uri=Path(sys.argv[1], "mlruns").as_uri())
        (experiment,) = [e for e in client.search_experiments() if e.name == "drlnb"]
        found = {}
        for run in client.search_runs([experiment.experiment_id]):
            losses = sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, "train/loss"))
            tags, gamma = run.data.tags, run.data.params["gamma"]
            found[tags["drlnb.task"]] = [run.info.status, tags["drlnb.run"], gamma, losses]
        print(json.dumps(found))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "a": ["FINISHED", "r1", "0.9", [[128, 64.0], [256, 128.0]]],
        "b": ["FINISHED", "r1", "0.9", [[128, 1.0]]],
    }
