"""Scenes 9 and 21: a slot of a running gang is broken on purpose, and four jobs are placed by hand."""

import re

from tests.browser.lab import until
from tests.browser.scenes import SOON_MS
from tests.browser.test_recording import OVERFLOWS

TRIED = "from drlnb.widgets.faces import placement\n\npanel = placement()\npanel"
TRAIN = """
import drlnb
fleet = drlnb.Fleet(slots=2, n_workers=2)
run = fleet.train(drlnb.Task(
    "CartPole-v1", name="pair", n_learners=2, n_envs=2, n_collectors=2, n_steps=64, n_epochs=100, batch_size=128,
    deterministic=False, total_timesteps=10**7, eval_episodes=0))
run.panel("placement")
"""
STEPS = "run.tasks['pair'].n_timesteps"
HAND = r"by hand (\d\.\d+), ect (\d\.\d+) x the best of 8 random, same faults"


def words(panel, name):
    """Return the text of a part of a panel."""
    return panel.get_by_test_id(name).first.inner_text()


def confirmed(panel, name):
    """Press a button that asks back, and say yes."""
    panel.get_by_test_id(f"{name}-button").click()
    panel.get_by_test_id(f"{name}-yes").click()


def rows(page, panel, number):
    """Return the table twin of a picture of a panel."""
    picture = panel.locator(".drlnb").filter(has=page.get_by_test_id("twin-button")).nth(number)
    if picture.get_by_test_id("twin-button").get_attribute("aria-pressed") != "true":
        picture.get_by_test_id("twin-button").click()
    return picture.evaluate("""root => [...root.querySelectorAll('[data-testid=twin] tbody tr')]
        .map(row => [...row.cells].map(cell => cell.innerText))""")


def click_cell(page, panel, lane, of_lanes):
    """Click the first cell of a lane of the last board that is seen."""
    canvas = panel.get_by_test_id("canvas").filter(visible=True).last
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + 70, box["y"] + 18 + (box["height"] - 52) * (lane + 0.5) / of_lanes)


def failed(page, panel):
    """Return the rows of gangs that a failure has ended."""
    return [row for row in rows(page, panel, 1) if row[6] == "a member failed"]


def test_a_bad_card_loses_its_gang_and_another_plan_follows(notebook, page, tmp_path):
    """The lane ends with lost work, the reasons are those of the record; simulated gangs are placed by keyboard."""
    page.set_viewport_size({"width": 1400, "height": 1500})
    notebook.open([TRIED, TRAIN])
    notebook.run_all(timeout_s=90)
    notebook.script("window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();")
    tried, live = (page.locator(".drlnb-t-placement").nth(i) for i in (0, 1))

    # -- 21: by hand, simulated
    assert "simulated" in words(tried, "origin")
    tried.get_by_role("tab", name="By hand").click()
    tried.locator(".drlnb-t-hand input").focus()
    page.keyboard.type("n0/0-7, n1/0-7, n2/0-7, n3/0-7")
    page.keyboard.press("Enter")
    said = until(lambda: re.search(HAND, words(tried, "notes")), SOON_MS / 1e3)
    assert said, words(tried, "notes")
    assert float(said[2]) <= float(said[1])
    notebook.screenshot(tmp_path / "hand.png")
    slots = tried.locator(".drlnb-t-hand input")
    click_cell(page, tried, 0, 8)
    assert until(lambda: slots.input_value().startswith("n0/1 n0/2 "), SOON_MS / 1e3), slots.input_value()
    page.keyboard.press("ArrowDown")  # passes another cell, which is no choice
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert until(lambda: "n0/7 n0/0, n1/0" in slots.input_value(), SOON_MS / 1e3), slots.input_value()
    tried.get_by_test_id("run-button").click()
    assert until(lambda: "at these settings failure awareness is worth" in words(tried, "sentence"), 60)
    tried.get_by_role("tab", name="Planners").click()
    notebook.screenshot(tmp_path / "tried.png")

    # -- 9: measured
    assert until(lambda: re.search(r"[12] of 2 slots busy", words(live, "sentence")), 60), words(live, "sentence")
    assert until(lambda: notebook.kernel_eval(f"{STEPS} if len(run.tasks['pair'].gang) == 2 else 0") > 500, 60)
    notebook.screenshot(tmp_path / "before.png")
    n_ended, lost = 0, []
    while not lost and n_ended < 8:
        confirmed(live, "break")
        assert until(lambda n=n_ended: len(failed(page, live)) > n, SOON_MS / 1e3)
        ended, n_steps = failed(page, live), notebook.kernel_eval(STEPS)
        assert {row[0].partition("/")[0] for row in ended} == {"0", "1"}, "all of the gang is stopped"
        n_ended, lost = len(ended), [row for row in ended if row[3].startswith("lost")]
        assert until(lambda n=n_steps: notebook.kernel_eval(STEPS) > n + 200, 60), "it goes on"
    assert lost, "four failures, each between two leases"
    assert until(lambda: "failed: " in words(live, "notes"), SOON_MS / 1e3) or "added" in words(live, "notes")
    live.get_by_role("tab", name="Plans").click()
    n_plans = notebook.kernel_eval("sum(row['slots'] is not None for row in run.rows('placement'))")
    assert live.get_by_test_id("cell-version").filter(visible=True).count() >= min(n_plans, 3), "one row each"
    live.get_by_role("tab", name="Slots to choose from").click()
    assert until(lambda: "(failures expected in 100 days)" in words(live, "notes"), SOON_MS / 1e3), words(live, "notes")
    notebook.screenshot(tmp_path / "after.png")
    confirmed(live, "drain")
    assert until(lambda: any(row[2] == "drained" for row in rows(page, live, 0)), SOON_MS / 1e3), rows(page, live, 0)
    live.get_by_test_id("undrain-button").click()
    assert until(lambda: all(row[2] != "drained" for row in rows(page, live, 0)), SOON_MS / 1e3), rows(page, live, 0)
    assert page.get_by_test_id("message").count() == 0

    for width in (850, 320):
        page.set_viewport_size({"width": width, "height": 900})
        for panel in (tried, live):
            canvas = panel.get_by_test_id("canvas").first
            assert until(lambda width=width, canvas=canvas: canvas.bounding_box()["width"] < width, 20)
            assert [fault for module in panel.locator(".drlnb").all() for fault in module.evaluate(OVERFLOWS)] == []
    notebook.kernel_eval("fleet.close()")
