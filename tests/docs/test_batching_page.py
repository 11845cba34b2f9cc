"""The page on supervised training and its ten lines in the README train what the page's plain loop trains."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import drlnb
from drlnb.fleet.fit import fit
from drlnb.fleet.policies.modules import load_module
from drlnb.records.errors import ConfigError
from drlnb.rl.checkpoints.trained import State, Trained
from drlnb.rl.networks.same_bits import one_thread
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.files.run_directory import RunDir
from drlnb.runtime.master.checkpoint_effects import write_trained
from drlnb.runtime.master.work import located

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/batching.md")}


def block(page, kind):
    (text,) = re.findall(rf"^```python {kind}\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)
    return text


class Here:
    """A fleet that trains in this process as an executor does."""

    out = Path()

    def __init__(self, slots):
        self.slots = slots

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def fit(self, *args, **kwargs):
        return fit(self, *args, **kwargs)

    def begin(self, spec, out, on_existing, start=None, files=None):
        RunDir(self.out).add(files)
        task = spec.tasks[0]
        learner = FitLearner(located(task, self.out))
        learner.begin(1, task.total_timesteps)
        learner.finish()
        facts, buffer = learner.state()
        state = State(published=learner.published(), facts=facts, buffer=buffer)
        write_trained(self.out / "checkpoints/fit", task, Trained(state=state, n_rounds=1, n_timesteps=80), {})
        return SimpleNamespace(wait=lambda: None, load=lambda: load_module(task, self.out))


def ran(page, n_lines=None):
    """Return what a page's example and the plain loop make."""
    text = block(page, "fit")
    assert n_lines is None or sum(bool(line.strip()) for line in text.splitlines()) <= n_lines
    names = {"__name__": "__main__"}
    exec(text, names)
    with one_thread():
        exec(block("docs/batching.md", "loop"), names)
    return names["trained"].state_dict(), names["expected"].state_dict()


def assert_same(ours, expected):
    assert ours.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in ours.items())


@pytest.fixture
def _alone():
    """Keep random numbers of other tests apart."""
    with torch.random.fork_rng(devices=[]), one_thread():
        yield


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize(("page", "n_lines"), [("README.md", 12), ("docs/batching.md", None)])
def test_the_example_trains_what_the_plain_loop_trains(page, n_lines, monkeypatch, tmp_path):
    """Bit by bit, through the files that a fleet would write."""
    monkeypatch.setattr(drlnb, "Fleet", Here, raising=False)
    monkeypatch.setattr(Here, "out", tmp_path)
    assert_same(*ran(page, n_lines))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.usefixtures("_alone")
def test_the_readme_trains_on_real_processes(monkeypatch, tmp_path):
    """As it stands."""
    monkeypatch.chdir(tmp_path)
    assert_same(*ran("README.md"))


def test_the_schedule_of_the_page_is_kept_in_the_groups():
    """Its rates are those of the formula, by hand: a quarter, a half, three quarters of the way."""
    names = {"torch": torch}
    exec(block("docs/batching.md", "schedule"), names)
    optimizer = names["cosine"]([torch.nn.Parameter(torch.zeros(1))], lr=2.0, n_steps=4)
    rates = []
    for _ in range(4):
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([1.0 + 0.5**0.5, 1.0, 1.0 - 0.5**0.5, 0.0])
    assert optimizer.state_dict()["param_groups"][0]["step"] == 4


@pytest.mark.usefixtures("_alone")
def test_the_masked_loss_of_the_page_is_one_that_several_learners_share():
    """It is PyTorch's mean over tokens that count, and says how many these are; without that it is refused."""
    names = {"torch": torch}
    exec(block("docs/batching.md", "masked"), names)
    masked_loss, numbers = names["masked_loss"], torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 7, (12, 5), generator=numbers)
    tokens[::2, 1:] = 0
    data = torch.utils.data.TensorDataset(tokens, tokens)
    module = torch.nn.Embedding(7, 7)
    loss, n = masked_loss(module(tokens), tokens)
    wanted = torch.nn.functional.cross_entropy(module(tokens).flatten(0, 1), tokens.flatten(), ignore_index=0)
    assert torch.allclose(loss, wanted)
    assert n == 6 * 5 + 6 * 1
    fleet, given = SimpleNamespace(begin=lambda *parts, **more: "begun"), {"batch_size": 6, "n_epochs": 1}
    given |= {"optimizer": torch.optim.Adam, "n_learners": 2}
    assert fit(fleet, module, data, masked_loss, **given) == "begun"
    with pytest.raises(ConfigError, match="as the mean of two parts of them"):
        fit(fleet, module, data, lambda *parts: masked_loss(*parts)[0], **given)
