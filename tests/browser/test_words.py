"""Scene 17: is a person told in words what is wrong, where they look, and before anything is made?"""

from tests.browser.scenes import FLEET, SOON_MS, Desk

#: An environment that raises in its seventh step.
FRAGILE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Fragile(CartPoleEnv):
    n = 0

    def step(self, action):
        self.n += 1
        if self.n == 7:
            raise ValueError("the pole is made of glass")
        return super().step(action)


gymnasium.register("Fragile-v0", Fragile)
"""


def test_an_unknown_environment_is_named_before_the_start(notebook, page, tmp_path):
    """``CartPole-v9``: the near name stands in the form, Start is off, and there is no run directory."""
    notebook.open([FLEET + "\nfleet"])
    notebook.run_all()
    launcher = page.locator(".drlnb-t-launcher")
    launcher.locator(".drlnb-t-env input").fill("CartPole-v9")
    page.keyboard.press("Tab")
    launcher.get_by_test_id("notes").get_by_text("CartPole-v1").wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "unknown_env.png")
    start = launcher.get_by_test_id("start-button")
    assert start.count() == 0 or not start.is_visible() or start.get_attribute("aria-disabled") == "true"
    assert not (notebook.path.parent / "runs").exists()
    launcher.locator(".drlnb-t-env input").fill("CartPole-v1")
    page.keyboard.press("Tab")
    page.locator("[data-testid=start-button]:visible:not([aria-disabled=true])").wait_for(timeout=SOON_MS)


def test_an_environment_that_raises_shows_its_traceback(notebook, page, tmp_path):
    """The failed row holds the environment's own exception and the line that raised it."""
    (notebook.path.parent / "fragile.py").write_text(FRAGILE, encoding="utf-8")
    path = "import os, sys\nos.environ['PYTHONPATH'] = os.getcwd()\n"
    notebook.open([path + FLEET, "run = fleet.train(drlnb.Task('fragile:Fragile-v0', total_timesteps=5_000))\nrun"])
    notebook.run_all()
    desk = Desk(notebook, 1)
    desk.tasks.get_by_test_id("cell-state").get_by_text("failed").wait_for(timeout=30_000)
    desk.tasks.get_by_test_id("row").click()
    why = desk.tasks.get_by_test_id("failure")
    why.wait_for(timeout=SOON_MS)
    notebook.screenshot(tmp_path / "failed.png")
    assert "the pole is made of glass" in why.inner_text()
    assert "fragile.py" in why.inner_text()
    (run,) = (notebook.path.parent / "runs").iterdir()
    assert (run / "run.json").exists()
