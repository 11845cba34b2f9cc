"""Scene 6: a member becomes half as fast; its share falls, the others rise, and all of it comes back."""

import re

from tests.browser.lab import until
from tests.browser.scenes import SOON_MS
from tests.browser.test_recording import OVERFLOWS

TRIED = "from drlnb.widgets.faces import batching\n\npanel = batching(family='static')\npanel"
#: Three collectors of an environment that sleeps.  One is half as fast once there is a switch: the third that steps,
#: since whoever checks the environment makes a step, too.
TRAIN = """
import os, time
from pathlib import Path
import gymnasium
import drlnb
places, switch = Path("places").resolve(), Path("switch").resolve()
places.mkdir()

class Slow(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.number = None

    def step(self, action):
        while self.number is None:
            number = len(list(places.iterdir()))
            try:
                (places / str(number)).mkdir()
                self.number = number
            except FileExistsError:
                pass
        time.sleep(0.004 if self.number == 2 and switch.exists() else 0.002)
        return super().step(action)

fleet = drlnb.Fleet(slots=1)
run = fleet.train(
    drlnb.Task(Slow, name="lame", n_envs=3, n_collectors=3, n_steps=32, total_timesteps=10**6, eval_episodes=0),
    planners={"collect": "jump-reset"})
run.panel("batching")
"""
SHARES = (
    "[(r['split'], r['n_planned'], r['compute_s'], r['n_done']) for r in run.rows('shares') if r['role'] == 'collect']"
)


def test_a_lame_member_gets_less_and_recovers(notebook, page, tmp_path):
    """Simulated by mouse, measured with collectors, and emulated by mouse: every split's shares sum to the batch."""
    notebook.open([TRIED, TRAIN])
    notebook.run_all()
    tried, lame = (page.locator(".drlnb-t-batching").nth(i) for i in (0, 1))

    def rows(panel):
        """Return member -> planned units, of the table twin of the newest split."""
        shares = panel.locator(".drlnb").filter(has=page.get_by_test_id("twin-button")).nth(2)
        if shares.get_by_test_id("twin-button").get_attribute("aria-pressed") != "true":
            shares.get_by_test_id("twin-button").click()
        cells = shares.evaluate("""root => [...root.querySelectorAll('[data-testid=twin] tbody tr')]
            .map(row => [...row.cells].map(cell => cell.innerText))""")
        return {row[1]: float(row[2]) for row in cells}

    def planned(panel, total):
        """Return its rows once they are of one split."""
        seen = until(lambda: (found := rows(panel)) and sum(found.values()) == total and found, SOON_MS / 1e3)
        assert seen, rows(panel)
        return seen

    def words(panel, name):
        return panel.get_by_test_id(name).first.inner_text()

    # -- simulated: the last of 100 splits lies behind the 20 slow ones, unless they are more
    before = planned(tried, 512)
    assert "simulated" in words(tried, "origin")
    field = tried.locator(".drlnb-t-n_slow input")
    field.fill("50")
    field.press("Enter")
    assert until(lambda: "for 50 splits" in words(tried, "slow-button"), SOON_MS / 1e3)
    tried.get_by_test_id("slow-button").click()
    assert until(lambda: rows(tried).get("member 3", 99) < 0.65 * before["member 3"], SOON_MS / 1e3), rows(tried)
    slowed = planned(tried, 512)
    assert all(slowed[name] >= before[name] for name in slowed if name != "member 3")
    assert words(tried, "number-lost").startswith("not used")
    notebook.screenshot(tmp_path / "tried.png")
    tried.get_by_test_id("reset-button").click()
    assert until(lambda: rows(tried) == before, SOON_MS / 1e3), rows(tried)

    # -- measured, with collectors
    def steady():
        """Return whether so many rounds were made that no start is in the speeds any more, and all are about alike."""
        number = re.search(r"split (\d+) among collectors by jump-reset", words(lame, "sentence"))
        return number and int(number[1]) >= 20 and min(rows(lame).values(), default=0) >= 27

    assert until(steady, 60), (words(lame, "sentence"), rows(lame))
    assert "measured" in words(lame, "origin")
    n_before = notebook.kernel_eval(SHARES)[-1][0]
    notebook.kernel_eval("switch.touch()")
    assert until(lambda: (found := rows(lame)) and min(found.values()) <= 23, SOON_MS / 1e3), rows(lame)
    planned(lame, 96)
    notebook.screenshot(tmp_path / "lame.png")
    notebook.kernel_eval("switch.unlink()")
    assert until(lambda: (found := rows(lame)) and min(found.values()) >= 27, SOON_MS / 1e3), rows(lame)

    def recorded():
        """Return the shares that are done, and when the first slow one was; they reach the disk a second later."""
        shares = [row for row in notebook.kernel_eval(SHARES) if row[3]]
        slow = [k for k, _, s, n in shares if k > n_before and s / n > 0.0035]
        return slow and min([n for k, n, *_ in shares if k > slow[-1] + 5], default=0) >= 27 and (shares, slow[0])

    shares, slow_from = until(recorded, SOON_MS / 1e3)
    small = next(k for k, n, *_ in shares if k >= slow_from and n <= 23)
    assert small - slow_from <= 5, "within five rounds"
    assert {sum(n for k, n, *_ in shares if k == split) for split, *_ in shares[:-3]} == {96}

    # -- the same on purpose, by mouse: the last collector, twice as long, and all of it back by itself
    assert words(lame, "slow-button") == "Slow collector 2 x2 for 20 rounds"
    lame.get_by_test_id("slow-button").click()
    assert until(lambda: "emulated" in words(lame, "origin"), SOON_MS / 1e3)
    assert until(lambda: (found := rows(lame)) and found.get("collector 2", 99) <= 23, SOON_MS / 1e3), rows(lame)
    assert "emulated slow: C x2" in words(lame, "sentence")
    notebook.screenshot(tmp_path / "slowed.png")
    assert until(lambda: (found := rows(lame)) and min(found.values()) >= 27, SOON_MS / 1e3), rows(lame)
    assert page.get_by_test_id("message").count() == 0

    notebook.script("window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();")
    for width in (850, 320):
        page.set_viewport_size({"width": width, "height": 900})
        canvas = tried.get_by_test_id("canvas").first
        assert until(lambda width=width, canvas=canvas: canvas.bounding_box()["width"] < width, 20)
        assert [fault for module in tried.locator(".drlnb").all() for fault in module.evaluate(OVERFLOWS)] == [], width
    notebook.kernel_eval("fleet.close()")
