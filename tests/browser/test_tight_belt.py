"""Scene 8: the memory budget is halved while a task trains; what stayed is swapped, and the parameters are the same."""

import re

from tests.browser.lab import until
from tests.browser.scenes import SOON_MS
from tests.browser.test_recording import OVERFLOWS

TRAIN = """
import drlnb
same = dict(
    policy="CnnPolicy", policy_kwargs={"features_extractor_kwargs": {"features_dim": 64}}, n_steps=32, n_envs=2,
    n_collectors=1, batch_size=64, n_epochs=1, total_timesteps=64 * 20, seed=3, deterministic=True, eval_episodes=0)
env = "drlnb.rl.envs.catch:drlnb/Catch-v0"
fleet = drlnb.Fleet(slots=1)
run = fleet.train([
    drlnb.Task(env, name="belt", memory_budget="20MiB", **same), drlnb.Task(env, name="untouched", **same)])
run.panel("swapping")
"""
_CHANGES = "sum(len(s.of(__import__('drlnb.records.common').records.common.SettingChanged)) for s in {})"
CHANGES = _CHANGES.format("run.journal().streams.values()")
#: MiB of the newest steps' peaks, and whether both tasks have the same parameters.
PEAKS = "(run.panel('swapping').content.source.of.steps['peak'][-3:] / 2**20).tolist()"
SAME = "run.load('belt').parameters.tobytes() == run.load('untouched').parameters.tobytes()"


def test_half_the_budget_swaps_and_changes_no_bit(notebook, page, tmp_path):
    """Rows go from keep to swap, peaks under the line; the parameters are those of the untouched task, bit for bit."""
    notebook.open([TRAIN])
    notebook.run_all()
    panel = page.locator(".drlnb-t-swapping").first

    def actions() -> set[str]:
        return set(panel.get_by_test_id("cell-action").all_inner_texts())

    def reads(number: str) -> float:
        said = re.search(r"[\d.]+", panel.get_by_test_id(f"number-{number}").first.inner_text())
        return float(said[0]) if said else 0.0

    def notes(words: str) -> bool:
        return words in panel.get_by_test_id("notes").first.inner_text()

    assert until(lambda: actions() == {"keep"}, 60), actions()
    assert until(lambda: 10 < reads("peak") < 20, SOON_MS / 1e3)
    notebook.kernel_eval("run.pause()")
    before = notebook.kernel_eval(CHANGES)

    readout = panel.locator(".drlnb-t-budget_mib input")
    readout.fill("10")
    readout.press("Enter")
    assert until(lambda: notes("preview: belt, auto: "), SOON_MS / 1e3)
    assert until(lambda: "swap" in actions(), SOON_MS / 1e3)
    assert notebook.kernel_eval(CHANGES) == before, "looking asks for nothing"

    panel.get_by_test_id("apply-button").click()
    assert until(lambda: notes("plan: belt, auto: "), SOON_MS / 1e3)
    assert until(lambda: reads("budget") == 10, SOON_MS / 1e3)
    assert "swap" in actions()
    notebook.kernel_eval("run.resume()")
    assert until(lambda: notebook.kernel_eval("run.ended"), 150)
    assert notebook.kernel_eval("run.status") == "done"
    assert max(notebook.kernel_eval(PEAKS)) <= 10
    assert until(lambda: reads("peak") <= 10, SOON_MS / 1e3)
    assert "swap" in actions()
    assert notebook.kernel_eval(SAME) is True
    assert notebook.kernel_eval(CHANGES) == before + 1
    notebook.screenshot(tmp_path / "belt.png")
    assert panel.get_by_test_id("message").count() == 0

    notebook.script("window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();")
    canvas = panel.get_by_test_id("canvas").first
    for width in (850, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert until(lambda width=width: canvas.bounding_box()["width"] < width, 20)
        assert [fault for module in panel.locator(".drlnb").all() for fault in module.evaluate(OVERFLOWS)] == [], width
    notebook.kernel_eval("fleet.close()")
