"""What reaches a tracking library, played by stand-ins: names, settings, steps, and that all is ended."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from drlnb.rl.tracking import sinks
from drlnb.rl.tracking.sinks import MLflow, RunFacts, TensorBoard, WandB, sinks_of

SPEC = {
    "env": "CartPole-v1",
    "algo": "ppo",
    "seed": 3,
    "n_envs": 4,
    "env_factory": "a long pickle",
    "hyperparameters": {"gamma": 0.9},
}
SHOWN = {"env": "CartPole-v1", "algo": "ppo", "seed": 3, "n_envs": 4, "gamma": 0.9}


class Calls(list):
    """Writes down each call of any method; `broken` ones raise, those with an answer return it."""

    def __init__(self, broken=(), **answers):
        self._broken, self._answers = broken, answers

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.append((name, *args, *kwargs.values()))
            if name in self._broken:
                raise OSError(f"no {name}")
            return self._answers.get(name)

        return call

    def of(self, name):
        return [call[1:] for call in self if call[0] == name]


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    monkeypatch.setattr(sinks, "find_spec", lambda name: name)


@pytest.fixture
def facts(tmp_path):
    return RunFacts(run_id="r1", out=tmp_path / "out", tasks={"a": SPEC, "b": {"env": "X-v0"}})


@pytest.fixture
def make_module(monkeypatch):
    """Put a module in a library's place."""

    def make(name, **content):
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return make


@pytest.fixture
def writers(make_module):
    made = {}

    def writer(folder):
        return made.setdefault(folder, Calls(broken=("close",)))

    make_module("torch.utils.tensorboard", SummaryWriter=writer)
    return made


def test_tensorboard_has_a_folder_per_task_or_its_own(facts, writers):
    """Below the run, below a folder of the user's, or in that folder itself where there is one task alone."""
    for sink in (TensorBoard(), TensorBoard(facts.out / "mine"), TensorBoard(facts.out / "only", alone=True)):
        sink.open(facts)
    folders = ("tensorboard/a", "tensorboard/b", "mine/a", "mine/b", "only")
    assert list(writers) == [str(facts.out / folder) for folder in folders]


def test_tensorboard_shows_settings_and_scalars_at_their_step(facts, writers):
    """The settings are a table without the factory's pickle; each scalar is added at once and flushed."""
    sink = TensorBoard()
    sink.open(facts)
    sink.scalars("a", 128, {"train/loss": 0.5, "train/std": 1.0})
    writer = writers[str(facts.out / "tensorboard/a")]
    rows = "\n".join(f"|{key}|{value}|" for key, value in SHOWN.items())
    assert writer.of("add_text") == [("settings", f"|setting|value|\n|-|-|\n{rows}")]
    assert writer.of("add_scalar") == [("train/loss", 0.5, 128), ("train/std", 1.0, 128)]
    assert writer.of("flush") == [()]


def test_what_cannot_be_closed_keeps_nothing_else_open(facts, writers):
    """Each task's writer is closed once although all of them raise; a second close does nothing."""
    sink = TensorBoard()
    sink.open(facts)
    with pytest.raises(OSError, match="no close"):
        sink.close()
    sink.close()
    assert [writer.of("close") for writer in writers.values()] == [[()], [()]]


@pytest.mark.parametrize(
    ("given", "variable", "mode"),
    [(None, None, "offline"), (None, "disabled", "disabled"), ("online", "disabled", "online")],
)
def test_nothing_goes_online_unless_it_is_asked_for(facts, make_module, monkeypatch, given, variable, mode):
    """The argument wins over WANDB_MODE, which wins over offline."""
    started, runs = [], []

    def init(**options):
        started.append(options)
        runs.append(Calls())
        return runs[-1]

    make_module("wandb", init=init, Settings=lambda **_: "quiet")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if variable is not None:
        monkeypatch.setenv("WANDB_MODE", variable)
    sink = WandB(project="p", mode=given)
    sink.open(facts)
    sink.scalars("b", 7, {"x": 1.0})
    sink.close()
    assert [(run["mode"], run["name"], run["group"], run["project"]) for run in started] == [
        (mode, "a", "r1", "p"),
        (mode, "b", "r1", "p"),
    ]
    assert started[0]["config"] == SHOWN
    assert started[0]["dir"] == str(facts.out)
    assert facts.out.is_dir()
    assert [run[:] for run in runs] == [[("finish",)], [("log", {"x": 1.0}, 7), ("finish",)]]


@pytest.fixture
def mlflow(make_module, monkeypatch):
    """Put a client in place that knows the experiment `old` and makes runs named r0, r1."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    names = iter(("r0", "r1"))
    client = Calls(create_experiment="new")
    client.get_experiment_by_name = lambda name: SimpleNamespace(experiment_id="7") if name == "old" else None
    client.create_run = lambda experiment, run_name, tags: (
        client.append(("run", experiment, run_name, tags)) or SimpleNamespace(info=SimpleNamespace(run_id=next(names)))
    )
    client.uris = []

    def made(tracking_uri):
        client.uris.append(tracking_uri)
        return client

    make_module("mlflow")
    make_module("mlflow.tracking", MlflowClient=made)
    make_module("mlflow.entities", Metric=lambda key, value, _time, step: (key, value, step))
    return client


@pytest.mark.parametrize(("experiment", "number"), [("drlnb", "new"), ("old", "7")])
def test_mlflow_gets_a_run_per_task_in_a_new_or_a_known_experiment(facts, mlflow, experiment, number):
    """Tags say run and task, settings are parameters, and every run is ended."""
    sink = MLflow(experiment)
    sink.open(facts)
    sink.scalars("b", 9, {"x": 2.0})
    sink.close()
    assert mlflow.of("run") == [(number, task, {"drlnb.run": "r1", "drlnb.task": task}) for task in "ab"]
    assert mlflow.of("log_param")[:5] == [("r0", key, value) for key, value in SHOWN.items()]
    assert mlflow.of("log_batch") == [("r1", [("x", 2.0, 9)])]
    assert sorted(mlflow.of("set_terminated")) == [("r0",), ("r1",)]


def test_mlflows_store_is_the_argument_the_variable_or_the_run(facts, mlflow, monkeypatch):
    """Files are opted in to, a server is not; the variable wins over the run's folder, the argument over both."""
    import os

    assert isinstance(sinks_of("mlflow")[0], MLflow)
    MLflow(uri="http://x:5").open(RunFacts(run_id="r", out=facts.out))
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ
    MLflow().open(RunFacts(run_id="r", out=facts.out))
    assert os.environ["MLFLOW_ALLOW_FILE_STORE"] == "true"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://y:6")
    MLflow().open(RunFacts(run_id="r", out=facts.out))
    assert mlflow.uris == ["http://x:5", (facts.out / "mlruns").resolve().as_uri(), "http://y:6"]
