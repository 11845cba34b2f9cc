"""The page on one round shows the whole file, which trains on public parts alone; its changes do what they say."""

import ast
import hashlib
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from drlnb.planning.leasing.planners import HoldPlan

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests/docs/one_round.py"
TEXT = FILE.read_text(encoding="utf-8")
PAGE = (ROOT / "docs/one-round.md").read_text(encoding="utf-8")
START = 'if __name__ == "__main__":\n    train()\n'
#: A change of a few rounds that shows all that is asked for here.
SHORT = "n_rounds=2, n_steps=64, n_epochs=3"


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def changed(diff):
    """Return the file after a diff of the page: what goes must be there, once."""
    text = TEXT
    for hunk in diff.split("@@\n"):
        old, new = ("".join(line[1:] for line in hunk.splitlines(True) if line[0] in {sign, " "}) for sign in "-+")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def about(word):
    """Return the file after the diff that has a word."""
    (diff,) = (diff for diff in blocks("diff") if word in diff)
    return changed(diff)


def run(folder, text, start="train()"):
    """Run a text as a script that ends so; return what it printed, and the returns of its rounds."""
    assert START in text
    script = folder / "one_round.py"
    script.write_text(text.replace(START, f'\nif __name__ == "__main__":\n{_indented(start)}'), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], cwd=folder, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, [float(value) for value in re.findall(r"mean return (\S+) of", done.stdout)]


def _indented(text):
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(True))


def test_the_page_is_the_file_piece_by_piece():
    """Every line of the file stands on the page, in its order."""
    shown = re.sub(r"\n+", "\n", "\n".join(blocks("python")))
    assert shown.splitlines() == re.sub(r"\n+", "\n", TEXT).splitlines()
    assert len(TEXT.splitlines()) <= 300


def test_the_file_stands_on_public_parts():
    """It imports only names that modules export, and touches no underscore."""
    tree = ast.parse(TEXT)
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module[:5] == "drlnb"]
    assert {node.module for node in imported} >= {"drlnb.distribution", "drlnb.planning.leasing.planners"}
    for node in imported:
        module = import_module(node.module)
        names = {alias.name for alias in node.names}
        assert names <= set(getattr(module, "__all__", dir(module))), node.module
        assert not [name for name in (*names, *node.module.split(".")) if name.startswith("_")]
    touched = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert [name for name in touched if name.startswith("_") and name != "__init__"] == []


@pytest.mark.parametrize("diff", blocks("diff"))
def test_a_change_fits_the_file(diff):
    """What a diff takes away is there once, and what it gives is Python."""
    ast.parse(changed(diff))


@pytest.mark.cluster
def test_the_return_rises(tmp_path):
    """Five rounds of CartPole on two hosts and one slot: one lease and one version each; the return doubles."""
    said, returns = run(tmp_path, TEXT, "train(Settings(n_rounds=5))")
    assert len(returns) == 5
    assert returns[-1] > 2.0 * returns[0]
    assert re.findall(r"version (\d) by \S+ to (\d) hosts", said) == [(str(n), "2") for n in range(2, 7)]
    assert said.splitlines()[-1].startswith("5 leases: ")


SHOW = """
from hashlib import sha256

def show(policy):
    values = [value.numpy().tobytes() for value in policy.state_dict().values()]
    print("digest", sha256(b"".join(values)).hexdigest())

"""


@pytest.mark.slow
@pytest.mark.cluster
def test_slots_rules_and_plans_do_not_change_the_parameters(tmp_path):
    """Two slots at once, each lease rule, each way to the hosts: bit by bit what one slot computes."""
    show = "show(train(Settings({settings}){planners})[0])\n"
    own = [change[: change.rindex("train(")] for change in blocks("python change") if "class" in change]
    cases = [
        (SHORT, ""),
        (f"{SHORT}, n_slots=2", ""),
        (SHORT, ', hold="yield", plan="chain:c=2"'),
        (SHORT, ", hold=Half(), plan=Gateway()"),
    ]
    start = SHOW + "\n\n".join(own) + "\n\n" + "".join(show.format(settings=s, planners=p) for s, p in cases)
    said, _ = run(tmp_path, TEXT, start)
    digests = re.findall(r"^digest (\S+)$", said, re.MULTILINE)
    assert len(digests) == 4
    assert len(set(digests)) == 1
    assert digests[0] != hashlib.sha256(b"").hexdigest()
    assert said.count("by own:gateway to 2 hosts") == 2


@pytest.mark.slow
@pytest.mark.cluster
def test_another_environment(tmp_path):
    """Acrobot needs an argument alone, as on the page, other rules included."""
    (change,) = (change for change in blocks("python change") if "Acrobot" in change)
    said, returns = run(
        tmp_path,
        TEXT,
        change.replace("n_steps=512", "n_steps=512, n_rounds=2").replace("n_slots=2", f"n_slots=2, {SHORT}"),
    )
    assert len(returns) == 4
    assert -500.0 <= returns[0] <= -60.0
    assert "by chain:c=2 to 2 hosts" in said


@pytest.mark.slow
@pytest.mark.cluster
def test_another_algorithm(tmp_path):
    """A2C learns, too: more slowly, as one gradient per round is less than ten."""
    _, returns = run(
        tmp_path,
        about("n_epochs"),
        "train(Settings(n_rounds=12))",
    )
    assert max(returns[-3:]) > 1.3 * returns[0]


@pytest.mark.slow
@pytest.mark.cluster
def test_continuous_actions(tmp_path):
    """Pendulum: 200 steps an episode, whose returns lie where they must."""
    _, returns = run(tmp_path, about("Independent"), 'train(Settings(env="Pendulum-v1", n_rounds=3))')
    assert len(returns) == 3
    assert all(-2000.0 < value < -300.0 for value in returns)


KILLER = """
import os
import signal

import psutil

from drlnb.planning.leasing.planners import HoldPlan

class Killer:
    name = "killer"
    left = 1

    def plan(self, view):
        if view.held and view.n_queued == 0 and self.left:
            self.left -= 1
            for process in psutil.process_iter(["cmdline"]):
                words = " ".join(process.info["cmdline"] or ())
                if words.startswith("drlnb WHAT") and os.getpid() in {p.pid for p in process.parents()}:
                    process.send_signal(signal.SIGKILL)
                    process.wait(5)
        if view.held or view.n_arrived < view.n_expected:
            return HoldPlan(action="keep", reason="wait for it")
        return HoldPlan(action="request", reason="all is here")

train(Settings(SHORT), hold=Killer())
"""


def test_a_planner_that_waits_for_ever_is_refused():
    """All is here and no slot was asked for: one line, nothing is leased."""
    made = {"__name__": "one_round"}
    exec(compile(TEXT, "one_round.py", "exec"), made)
    fragments = [made["Fragment"](collector=i, version=1, episode_returns=[], rows={}) for i in range(2)]
    learner = SimpleNamespace(settings=made["Settings"]())
    with pytest.raises(RuntimeError, match="hold planner idle would wait for ever: all batches of the round are here"):
        made["learn"](None, learner, Idle(), iter(fragments))


class Idle:
    name = "idle"

    def plan(self, view):
        return HoldPlan(action="wait", reason="as always")


@pytest.mark.slow
@pytest.mark.cluster
def test_a_slot_that_dies_costs_a_lease(tmp_path):
    """The loop says why, and makes the round under the next lease."""
    said, returns = run(tmp_path, TEXT, KILLER.replace("WHAT", "executor").replace("SHORT", SHORT))
    assert said.count("a lease was lost: ") == 1
    assert len(returns) == 2
