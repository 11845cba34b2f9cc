"""Scene 17: a user reads in words what is wrong, where they look, and before anything is made."""

import re

import pytest

from tests.browser.lab import until
from tests.browser.scenes import FLEET, SOON_MS, Desk

#: An environment that raises in its seventh step, unless a file says that it is mended; and one that raises from when
#: a file says that it is broken.
FRAGILE = """
from pathlib import Path

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

HERE = Path(__file__).parent


class Fragile(CartPoleEnv):
    n = 0

    def step(self, action):
        self.n += 1
        if self.n == 7 and not (HERE / "mended").exists():
            raise ValueError("the pole is made of glass")
        return super().step(action)


class Mortal(CartPoleEnv):
    def step(self, action):
        if (HERE / "broken").exists():
            raise ValueError("the pole has fallen for good")
        return super().step(action)


gymnasium.register("Fragile-v0", Fragile)
gymnasium.register("Mortal-v0", Mortal)
"""
IMPORTABLE = """import os
os.environ['PYTHONPATH'] = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get('PYTHONPATH')])])
"""
#: Expression: the finished rounds as the journal has them.
METRICS = "__import__('drlnb.fleet.rows.tables').fleet.rows.tables.table_rows(run.journal(), 'metrics')"
#: Field, what is typed, and what the reason must hold besides; the field's first value is right.
WRONG = (
    ("env", "", "choose an environment"),
    ("env", "no such thing", "no such thing"),
    ("seeds", "", "seeds are missing"),
    ("seeds", "-1", "'-1'"),
    ("seeds", "many", "'many'"),
    ("seeds", "0-100000", "0-100000"),
    ("seeds", "99999999999999999999999", "9999"),
    ("total_timesteps", "-5", "'-5'"),
    ("total_timesteps", "0", "'0'"),
    ("total_timesteps", "1e99", "'1e99'"),
    ("total_timesteps", "9" * 300, "9999"),
    ("total_timesteps", "soon", "'soon'"),
    ("slots", "-1", "'-1'"),
    ("slots", "7", "this fleet has 1"),
    ("slots", "x" * 500, "xxx"),
)
RIGHT = {"env": "CartPole-v1", "seeds": "0", "total_timesteps": "", "slots": ""}


def _field(launcher, name: str):
    return launcher.locator(f".drlnb-t-{name} input")


def _start(launcher):
    return launcher.get_by_test_id("buttons").get_by_test_id("start-button")


def test_an_unknown_environment_is_named_before_the_start(notebook, page, tmp_path):
    """``CartPole-v9``: the near name stands in the form, Start is off, and there is no run directory."""
    notebook.open([FLEET + "\nfleet"])
    notebook.run_all()
    launcher = page.locator(".drlnb-t-launcher")
    _field(launcher, "env").fill("CartPole-v9")
    page.keyboard.press("Tab")
    launcher.get_by_test_id("notes").get_by_text("CartPole-v1").wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "unknown_env.png")
    assert _start(launcher).get_attribute("aria-disabled") == "true"
    _start(launcher).click(force=True)
    assert not (notebook.path.parent / "runs").exists()
    _field(launcher, "env").fill("CartPole-v1")
    page.keyboard.press("Tab")
    page.locator("[data-testid=start-button]:visible:not([aria-disabled=true])").wait_for(timeout=SOON_MS)


def test_wrong_fields_are_told_with_what_was_typed(notebook, page, tmp_path):
    """Empty, negative, huge, text: Start is off and says why; right again, it is on.  Nothing is made meanwhile."""
    notebook.open([FLEET + "\nfleet.panel(env='CartPole-v1')"])
    notebook.run_all()
    launcher = page.locator(".drlnb-t-launcher")
    on = page.locator("[data-testid=start-button]:visible:not([aria-disabled=true])")
    notes = launcher.get_by_test_id("notes")
    for name, typed, words in WRONG:
        on.wait_for(timeout=SOON_MS)
        _field(launcher, name).fill(typed)
        page.keyboard.press("Tab")
        assert until(lambda words=words: words in notes.inner_text(), SOON_MS / 1e3), (name, typed[:40], words)
        assert "Start is off" in notes.inner_text()
        assert len(notes.inner_text()) < 1_000
        assert _start(launcher).get_attribute("aria-disabled") == "true"
        assert _start(launcher).get_attribute("title")
        if typed == "many":
            notebook.screenshot(tmp_path / "wrong_field.png")
        _field(launcher, name).fill(RIGHT[name])
        page.keyboard.press("Tab")
    on.wait_for(timeout=SOON_MS)
    assert not (notebook.path.parent / "runs").exists()
    assert page.locator(".drlnb-msg[data-level=error]").count() == 0


def _failed(notebook, env: str) -> Desk:
    """Train on a fragile environment."""
    (notebook.path.parent / "fragile.py").write_text(FRAGILE, encoding="utf-8")
    train = f"run = fleet.train(drlnb.Task('fragile:{env}', name='x', total_timesteps=20_000))\nrun"
    notebook.open([IMPORTABLE + FLEET, train])
    notebook.run_all()
    return Desk(notebook, 1)


def _wait_state(desk: Desk, words: str, timeout_ms: float = 60_000) -> None:
    desk.tasks.get_by_test_id("cell-state").filter(has_text=re.compile(words)).wait_for(timeout=timeout_ms)


def test_an_environment_that_raises_shows_its_traceback(notebook, tmp_path):
    """The failed row holds the environment's own exception and the line that raised it; mended, it starts again."""
    desk = _failed(notebook, "Fragile-v0")
    _wait_state(desk, "failed")
    desk.row("x").click()
    why = desk.tasks.get_by_test_id("failure")
    why.wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "failed.png")
    assert "the pole is made of glass" in why.inner_text()
    assert "fragile.py" in why.inner_text()
    (run,) = (notebook.path.parent / "runs").iterdir()
    assert (run / "run.json").exists()
    again = desk.row("x").get_by_test_id("restart-button")
    assert again.inner_text() == "Restart from the start"
    (notebook.path.parent / "mended").touch()
    again.click()
    _wait_state(desk, "comput|collect|waiting")
    assert until(lambda: notebook.kernel_eval("run.tasks['x'].n_timesteps") > 2_000, 60)
    assert until(lambda: notebook.kernel_eval(f"max((row['attempt'] for row in {METRICS}), default=0)") > 1, 20)
    assert len(list((notebook.path.parent / "runs").iterdir())) == 1


@pytest.mark.slow
def test_a_failed_task_goes_on_from_its_round(notebook, tmp_path):
    """After a checkpoint in round k the row of a failed task offers "Restart from round k", and it begins there."""
    desk = _failed(notebook, "Mortal-v0")
    assert until(lambda: notebook.kernel_eval("run.tasks['x'].n_timesteps") > 1_000, 60)
    notebook.kernel_eval("run.checkpoint()")
    folder = next((notebook.path.parent / "runs").iterdir()) / "checkpoints" / "x"
    assert until(lambda: (folder / "LATEST").exists(), 60)
    n_then = notebook.kernel_eval("run.tasks['x'].n_timesteps")
    assert until(lambda: notebook.kernel_eval("run.tasks['x'].n_timesteps") > n_then, 60)
    (notebook.path.parent / "broken").touch()
    _wait_state(desk, "failed")
    kept = int((folder / "LATEST").read_text(encoding="utf-8"))
    again = desk.row("x").get_by_test_id("restart-button")
    again.wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "restart_from.png")
    assert again.inner_text() == f"Restart from round {kept}"
    (notebook.path.parent / "broken").unlink()
    again.click()
    _wait_state(desk, "comput|collect|waiting|done")
    assert until(lambda: notebook.kernel_eval("run.tasks['x'].state") in {"done", "failed"}, 90)
    assert notebook.kernel_eval("run.tasks['x'].state") == "done"
    rows = notebook.kernel_eval(METRICS)
    newest = max(row["attempt"] for row in rows)
    assert min(row["round"] for row in rows if row["attempt"] == newest) == kept + 1
