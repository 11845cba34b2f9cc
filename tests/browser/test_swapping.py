"""The swapping panel's controls: the parameters of a planner, and wrong values."""

from tests.browser.lab import until
from tests.browser.scenes import SOON_MS
from tests.browser.test_recording import OVERFLOWS, _change

CELL = (
    "from drlnb.widgets.faces import swapping\n\n"
    "panel = swapping(net='nature_cnn', budget_mib=2048.0, planner='capuchin', batch=7225)\npanel"
)
PLANNER = "panel.settings['planner']"
TRAIN = """
import drlnb
fleet = drlnb.Fleet(slots=1)
run = fleet.train(drlnb.Task(
    "drlnb.rl.envs.catch:drlnb/Catch-v0", name="belt", memory_budget="8MiB", policy="CnnPolicy", seed=3,
    policy_kwargs={"features_extractor_kwargs": {"features_dim": 64}}, n_steps=32, n_envs=2, n_collectors=1,
    batch_size=64, n_epochs=1, total_timesteps=10**6, eval_episodes=0))
run.panel("swapping")
"""
#: What was asked for of the task.
ASKED = (
    "sorted({f'{e.key}={e.value}' for s in run.journal().streams.values() for e in s.records"
    " if type(e).__name__ == 'SettingChanged'})"
)


def test_parameters_stand_in_the_planners_name_and_wrong_ones_are_told(notebook, page, tmp_path):
    """They are shown for the planner that takes them; a wrong one is one line, and what was set stays."""
    notebook.open([CELL])
    notebook.run_all()
    panel = page.locator(".drlnb-t-swapping").first
    sentence = panel.get_by_test_id("sentence").first
    assert until(lambda: "nature_cnn, 7,225 samples, capuchin: " in sentence.inner_text(), SOON_MS / 1e3)

    def field(name: str):
        return panel.locator(f".drlnb-t-{name} input").first

    def typed(name: str, value: str) -> None:
        field(name).fill(value)
        field(name).press("Enter")

    def told(words: str) -> bool:
        return until(lambda: words in panel.get_by_test_id("refused").first.inner_text(), SOON_MS / 1e3)

    assert not field("epsilon").is_visible()
    typed("planner", "qtable")
    assert until(lambda: field("epsilon").is_visible(), SOON_MS / 1e3)
    assert until(lambda: "qtable: " in sentence.inner_text(), SOON_MS / 1e3)
    typed("n_trials", "50")
    readout = panel.locator(".drlnb-t-w input")
    readout.fill("0.8")
    readout.press("Enter")
    assert until(lambda: "qtable:n_trials=50,w=0.8: " in sentence.inner_text(), SOON_MS / 1e3), sentence.inner_text()
    assert until(lambda: field("planner").input_value() == "qtable:n_trials=50,w=0.8", SOON_MS / 1e3)
    before = notebook.kernel_eval(PLANNER)
    for name, value, words in (
        ("epsilon", "7", "epsilon must be a number from 0 to 1, got 7"),
        ("n_trials", "1", "n_trials must be a whole number from 2 to 100000, got 1"),
        ("batch", "-1", "batch must be a whole number in 1..16777216, got -1"),
    ):
        was = field(name).input_value()
        typed(name, value)
        assert told(words), words
        assert until(lambda name=name, was=was: field(name).input_value() == was, SOON_MS / 1e3), name
        assert notebook.kernel_eval(PLANNER) == before
    notebook.screenshot(tmp_path / "wrong.png")
    typed("planner", "clever")
    assert told("swapping planner must be one of none")
    assert until(lambda: field("planner").input_value() == before, SOON_MS / 1e3)
    assert until(lambda: f"{before}: " in sentence.inner_text(), SOON_MS / 1e3)

    more = panel.get_by_test_id("canvas").nth(1)
    panel.get_by_test_id("learn-button").click()
    assert until(lambda: "in 50 trials" in (more.get_attribute("aria-label") or ""), SOON_MS / 1e3)

    panel.get_by_role("tab", name="Q-table").click()
    newest = panel.locator("td[data-newest]")
    assert until(lambda: newest.count() == 1, SOON_MS / 1e3)
    shade = "node => getComputedStyle(node).backgroundColor"
    assert newest.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
    assert len({cell.evaluate(shade) for cell in panel.locator("td[data-testid^=cell-q]").all()}) > 3

    notebook.script("window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();")
    canvas, track = panel.get_by_test_id("canvas").first, panel.locator(".drlnb-t-w .noUi-base")
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        _change(page, theme)
        for width in (900, 320):
            page.set_viewport_size({"width": width, "height": 1400})
            assert until(lambda width=width: canvas.bounding_box()["width"] < width, 20)
            notebook.screenshot(tmp_path / f"{theme.split()[1]}-{width}.png")
            assert track.bounding_box()["width"] > 110, "a slider that can be moved"
            apart = abs(track.bounding_box()["y"] - readout.bounding_box()["y"])
            assert width == 320 or apart < 20, "in one line, where there is room"
            wide = [fault for module in panel.locator(".drlnb").all() for fault in module.evaluate(OVERFLOWS)]
            assert wide == [], (theme, width)


def test_a_task_learns_and_its_table_is_forgotten(notebook, page, tmp_path):
    """The table grows by what trials cost; Reset is one event, and it begins with its first trial again."""
    cell = TRAIN.replace('memory_budget="8MiB"', 'memory_budget="16MiB"').replace(
        "total_timesteps=10**6, eval_episodes=0))",
        'total_timesteps=10**6, eval_episodes=0), planners={"swapping": "qtable:n_trials=500,w=0.4"})',
    )
    notebook.open([cell])
    notebook.run_all()
    panel = page.locator(".drlnb-t-swapping").first
    trials = "[d.trial for s in run.journal().streams.values() for d in s.records if type(d).__name__ == 'SwapLearned']"
    assert until(lambda: len(notebook.kernel_eval(trials)) > 6, 120)
    panel.get_by_role("tab", name="Q-table").click()
    assert until(lambda: panel.locator("td[data-newest]").count() == 1, SOON_MS / 1e3)
    panel.locator(".drlnb-t-show select").select_option("Q-learning")
    more = panel.get_by_test_id("canvas").nth(1)
    assert until(lambda: "by chance, the least costs" in (more.get_attribute("aria-label") or ""), SOON_MS / 1e3)
    notebook.script("window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();")
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        _change(page, theme)
        for width in (900, 320):
            page.set_viewport_size({"width": width, "height": 1900})
            assert until(lambda width=width: more.bounding_box()["width"] < width, 20)
            notebook.screenshot(tmp_path / f"learned-{theme.split()[1]}-{width}.png")
    assert notebook.kernel_eval(ASKED) == []
    panel.get_by_test_id("reset-button").click()
    assert until(lambda: notebook.kernel_eval(ASKED) == ["swapping.planner=qtable:n_trials=500,w=0.4"], 30)
    assert until(lambda: notebook.kernel_eval(trials).count(1) == 2, 60), "it begins with its first trial"
    assert panel.get_by_test_id("message").count() == 0
    notebook.kernel_eval("run.stop()")
    notebook.kernel_eval("fleet.close()")
