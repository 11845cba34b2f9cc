"""The examples of docs/own-loops.md do what it says, on real clusters."""

import re
from pathlib import Path

import pytest

from drlnb.records.columns import leasing
from drlnb.records.journal import Journal
from drlnb.rl.networks.same_bits import one_thread
from drlnb.views.leasing.gantt import gantt
from tests.runtime.laws import check_laws

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).resolve().parents[3] / "docs" / "own-loops.md"


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """Return the page's examples as texts; they run in a folder of their own."""
    if not PAGE.is_file():
        pytest.skip("no documentation beside these tests")
    monkeypatch.chdir(tmp_path)
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run_main(text):
    """Run an example as a module that nobody can import, like a notebook's; return what its main returns."""
    namespace = {"__name__": "own_loop_example"}
    exec(compile(text, "own-loops.md", "exec"), namespace)
    return namespace["main"]()


def others(out, name):
    """Return how many leases a loop had of a run's pool, once its journal and picture were found right."""
    journal = check_laws(out)
    view = gantt(journal)
    names = [style["name"] for style in view.facts["series"]]
    assert set(names) == {"CartPole-v1", name}
    assert any(note.startswith(f"{name}: no task of this run") for note in view.notes)
    own = [record for record in journal.of(leasing.LeaseGranted) if record.task.startswith("own-")]
    drawn = view.columns["bars"]["series"].tolist() + view.columns["open"]["series"].tolist()
    assert drawn.count(names.index(name)) == len(own)
    assert {"returned"} >= {r.reason for r in journal.of(leasing.LeaseReleased) if r.task.startswith("own-")}
    return len(own)


def test_a_pytorch_loop_shares_the_pool(examples, tmp_path, capsys):
    """The loop's loss falls from turn to turn, beside a task on the same slot; both are in the task's picture."""
    run_main(examples[0])
    losses = [float(loss) for loss in re.findall(r"turn \d: loss ([\d.]+)", capsys.readouterr().out)]
    assert len(losses) == 6
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 3
    assert others(tmp_path / "runs" / "shared", "regression") >= 1
    assert Journal.read(tmp_path / "runs" / "shared").of(leasing.LeaseExpired) == ()


def test_stable_baselines3_trains_on_leased_slots(examples, tmp_path, capsys):
    """SB3's updates on leased slots give the parameters of plain SB3, bit for bit, beside a task on the same slot."""
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed: pip install -e '.[bench]'")
    import torch
    from stable_baselines3 import PPO

    with one_thread():
        leased = run_main(examples[1])
        plain = PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, n_epochs=4, seed=0, device="cpu")
        plain.learn(1024)
    assert "16 epochs by SB3 beside" in capsys.readouterr().out
    assert leased._n_updates == plain._n_updates == 16
    ours, theirs = leased.policy.state_dict(), plain.policy.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert leased.logger.name_to_value.keys() == plain.logger.name_to_value.keys()
    assert others(tmp_path / "runs" / "with-sb3", "sb3") >= 1
