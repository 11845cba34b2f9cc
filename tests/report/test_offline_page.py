"""A real browser opens the report from disk: everything is drawn, nothing is said in the console."""

import shutil

import pytest

from drlnb.planning.distribution import PRESETS
from drlnb.records.columns.warmup import WarmupPlanned
from drlnb.records.common import SettingChanged
from drlnb.records.journal import Journal
from drlnb.report import build
from drlnb.sim.distribution.publish import simulate_publish
from drlnb.sim.warmup.compare import WarmupWorkload, simulate_warmup
from drlnb.views.drawing import words
from tests.views.drawing.test_marks import changed
from tests.views.journals import Run, two_tasks
from tests.views.placement import steps as placement

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH"),
]


PAPER = """() => {
  const painted = image => image.complete && image.naturalWidth > 0;
  dispatchEvent(new Event("beforeprint"));
  const images = [...document.querySelectorAll("img.drlnb-print")];
  return Promise.all(images.map(image => image.decode())).then(() => {
    const paper = [images.length, images.every(painted), document.documentElement.dataset.theme,
                   [...document.querySelectorAll("canvas")].every(canvas => canvas.clientHeight === 0)];
    dispatchEvent(new Event("afterprint"));
    const screen = [document.querySelectorAll("img.drlnb-print").length, document.documentElement.dataset.theme || "",
                    [...document.querySelectorAll("canvas")].every(canvas => canvas.clientHeight > 0)];
    return [paper, screen];
  });
}"""


def _long_run():
    """Return a run of two tasks for 60 s, whose setting is changed thrice at its end."""
    run = two_tasks()
    run.lease("a", 50.0, 50.0, 59.0, n=1)
    for key in ("a.x", "a.y", "a.z"):
        run.say(run.pool, SettingChanged(t=60.0, key=key, value=1, task=None))
    return run


@pytest.fixture
def opened(tmp_path, playwright):
    """Return what opens a report of two tasks in a browser without network: its page, and what went wrong in it."""
    build(_long_run().journal(), tmp_path / "out.html")
    words = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=words)

    def show(**options):
        page = browser.new_context(offline=True, **options).new_page()
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.goto((tmp_path / "out.html").as_uri())
        page.wait_for_selector("html[data-drawn=yes]", state="attached")  # the page's policy forbids to poll a text
        return page, wrong

    yield show
    browser.close()


def test_the_report_draws_itself(opened, tmp_path):
    """Modules, data and policy fit together: canvases have a size, the table has its rows."""
    build(two_tasks().journal(), tmp_path / "out.html")
    page, wrong = opened()
    drawn = page.locator("canvas[style*='height: ']")
    drawn.nth(3).wait_for(state="attached")  # a frame after its data has been read
    assert drawn.count() == page.locator("canvas").count() == 4
    assert page.locator("#view-tasks tr[data-testid=row]").count() == 2
    assert page.get_by_test_id("number-held").first.inner_text() == "held 80 %"
    assert wrong == []


def test_on_paper_every_canvas_is_a_picture(opened):
    """Before printing pictures in light colours stand for the canvases, after it the page is as before."""
    page, wrong = opened(color_scheme="dark")
    paper, screen = page.evaluate(PAPER)
    assert paper == [4, True, "light", True]
    assert screen == [0, "", True]
    assert wrong == []


def test_on_paper_legends_and_headings_stay(opened):
    """They are buttons on a screen; tools are none on paper."""
    page, _ = opened()
    page.emulate_media(media="print")
    assert page.get_by_test_id("legend").first.get_by_text("A", exact=True).first.is_visible()
    assert page.locator("#view-tasks th").first.inner_text().strip()
    assert not page.get_by_test_id("twin-button").first.is_visible()


def test_each_plan_of_a_task_is_a_row(opened, tmp_path):
    """Two plans of one task are two rows, the newest first: what one name has is not drawn over."""
    run = Run()
    run.say(run.pool, *placement.STORY)
    build(run.journal(), tmp_path / "out.html")
    page, _ = opened()
    rows = page.locator("#view-plans tr[data-testid=row]")
    assert [rows.nth(i).get_by_test_id("cell-version").inner_text() for i in range(rows.count())] == ["2", "1"]


@pytest.mark.parametrize("width", [320, 480, 850, 900, 1400])
def test_nothing_is_wider_than_the_page(opened, width):
    """From a phone to a wide screen neither the page nor the table has to be pushed sideways."""
    page, wrong = opened(viewport={"width": width, "height": 900})
    sizes = (
        "[document.documentElement, ...document.querySelectorAll('.drlnb-box')].map(e => e.scrollWidth - e.clientWidth)"
    )
    assert set(page.evaluate(sizes)) == {0}
    assert wrong == []


def test_the_journal_is_saved_by_a_click(opened, tmp_path):
    """The policy lets the link's own data through."""
    page, wrong = opened()
    with page.expect_download() as saving:
        page.get_by_test_id("journal").click()
    assert saving.value.suggested_filename == "journal.tar.gz"
    saving.value.save_as(tmp_path / "journal.tar.gz")
    assert (tmp_path / "journal.tar.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_forced_colours_lines_and_focus_are_the_systems(opened, scheme):
    """A person who chose their colours sees their own for text, edges and the ring around what has the focus."""
    page, wrong = opened(forced_colors="active", color_scheme=scheme)
    page.locator("canvas").first.focus()
    page.keyboard.press("ArrowRight")
    ring, own = page.evaluate("""() => {
      const ring = getComputedStyle(document.activeElement), probe = document.createElement("i");
      probe.style.color = "Highlight";
      document.body.append(probe);
      return [[ring.outlineStyle, ring.outlineColor], getComputedStyle(probe).color];
    }""")
    assert ring == ["solid", own]
    assert wrong == []


def test_keys_walk_the_bars_in_time_and_read_the_marks(opened):
    """Right goes to the next lease and stays at the last, Left goes back, Esc lets go; m reads marks in groups."""
    page, wrong = opened()
    leases = page.locator("#view-leases")
    details = leases.get_by_test_id("details")
    leases.get_by_test_id("canvas").focus()
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "Escape", "m", "m"):
        page.keyboard.press(key)
        said.append(details.inner_text().split(" · ")[0])
    assert said[:6] == ["#1", "#2", "#3", "#3", "#2", ""]
    assert said[6:] == [
        "mark at 10.0 s: hold: yield, from the next round on",
        "3 marks at 1 min 0 s: x: 1, at once; y: 1, at once; z: 1, at once",
    ]
    assert wrong == []


def test_charts_have_the_marks_too(opened, tmp_path):
    """Among learning curves arrow keys stop at a task's changed settings, and say from when on they count."""
    build(changed().journal(), tmp_path / "out.html")
    page, wrong = opened()
    curves = page.locator("#view-learning")
    curves.get_by_test_id("canvas").focus()
    said = []
    for _ in range(40):
        page.keyboard.press("ArrowRight")
        said.append(curves.get_by_test_id("details").inner_text())
    marked = [text for text in said if "mark" in text]
    assert marked[0].endswith("mark at environment steps 200: A learning_rate: 0.1, from the next round on")
    assert "A rho: 2.0" in marked[-1]
    assert "A switch_limit_frac: 1.0, at once" in marked[-1]
    assert wrong == []


def test_a_shorter_time_can_be_looked_at(opened):
    """Of 60 s, the last 30 can be chosen, and all of it again; longer spans than the run are not offered."""
    page, wrong = opened()
    buttons = page.locator("#view-leases").get_by_test_id("windows").locator("button")
    assert buttons.all_inner_texts() == ["30 s", "all"]
    buttons.first.click()
    pressed = buttons.evaluate_all("all => all.map(one => one.getAttribute('aria-pressed'))")
    assert pressed == ["true", "false"]
    assert wrong == []


@pytest.mark.parametrize("width", [320, 900])
def test_a_version_is_followed_from_moment_to_moment_without_a_kernel(opened, tmp_path, width):
    """Of a publisher's journal: by keys from the first byte to all but the lost relay; hosts and rows are read."""
    stream = simulate_publish("relay:m=8", 16, 20_000_000, PRESETS["10GbE"], fails={"h11": 0.02}).stream
    build(Journal(streams={"distribution": stream}), tmp_path / "out.html")
    page, wrong = opened(viewport={"width": width, "height": 900})
    net = page.locator("#view-topology")
    said, knob = net.get_by_test_id("said"), net.get_by_test_id("moment")
    knob.focus()
    page.keyboard.press("Home")
    assert said.inner_text() == "0.0 ms of 50 ms: 15 waiting, 1 receiving"
    page.keyboard.press("End")
    assert said.inner_text().endswith(": 15 complete, 1 dropped")
    assert net.locator("button", has_text="lost").count() == 1
    net.get_by_test_id("canvas").focus()
    page.keyboard.press("ArrowRight")
    assert " · complete · from " in net.get_by_test_id("details").inner_text()
    net.get_by_test_id("twin-button").click()
    assert net.get_by_test_id("twin").get_by_role("row").count() > 15
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert wrong == []


# -- warm-up ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def warm(tmp_path, playwright):
    """Return what opens the report of a simulated warm-up: its page, and what went wrong in it."""
    outcome = simulate_warmup(WarmupWorkload(n_rounds=30, n_workers=3, seed=1), "saa")
    build(Journal(streams={"warmup-sim": outcome.stream}), tmp_path / "out.html")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)

    def show(**options):
        page = browser.new_context(offline=True, **options).new_page()
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.goto((tmp_path / "out.html").as_uri())
        page.wait_for_selector("html[data-drawn=yes]", state="attached")
        return page, wrong

    yield show, outcome.stream
    browser.close()


def _least_cost(stream, rho):
    """Work out, from the newest record alone, the least cost of a planned start and where it is."""
    rows = [one for one in stream.of(WarmupPlanned) if one.candidates][-1].candidates
    return min((rho * wait + idle, -after) for after, wait, idle in rows if after is not None)


def test_the_price_of_waiting_moves_without_a_new_plan(warm):
    """The slider's words are what the recorded candidates give, at 1 and at 10; the dot's row in the table follows."""
    show, stream = warm
    page, wrong = show()
    price = page.locator("#view-curve0").get_by_test_id("price")
    slider = page.locator("#view-curve0").get_by_test_id("slider")
    for rho, knob in ((1.0, "0"), (10.0, "1")):
        slider.evaluate("(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }", knob)
        cost, after = _least_cost(stream, rho)
        said = f"rho {rho:g}: least cost {words.duration(cost)}, started {words.duration(-after)} after sending"
        assert price.inner_text().startswith(said)
    assert wrong == []


def test_the_band_of_one_standard_error_follows_the_price(warm):
    """At the earliest start the details tell cost -+ the standard error of its saving, from the newest record alone."""
    show, stream = warm
    page, wrong = show()
    view = page.locator("#view-curve0")
    plan = [one for one in stream.of(WarmupPlanned) if one.candidates][-1]
    (after, wait, idle), (of_wait, of_idle, along) = plan.candidates[0], plan.candidate_errors[0]
    assert after == 0.0
    for rho, knob in ((1.0, "0"), (10.0, "1")):
        view.get_by_test_id("slider").evaluate(
            "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }", knob
        )
        view.get_by_test_id("canvas").focus()
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowRight")
        cost = rho * wait + idle
        error = ((rho * of_wait) ** 2 + of_idle**2 - 2 * along * rho * of_wait * of_idle) ** 0.5
        band = f"({words.number(cost - error)} to {words.number(cost + error)})"
        assert f"{words.number(cost, 4)} {band}" in view.get_by_test_id("details").inner_text()
    assert wrong == []


def test_walking_the_bars_tells_why_each_collector_started(warm):
    """The details of a start have its cause, its planner and the planner's reason."""
    show, stream = warm
    page, wrong = show()
    view = page.locator("#view-warmup")
    view.get_by_test_id("canvas").focus()
    said = []
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        said.append(view.get_by_test_id("details").inner_text())
    starts = [one for one in said if " starts " in one]
    assert starts
    reasons = {one.reason for one in stream.of(WarmupPlanned)}
    assert all("saa" in one and any(reason in one for reason in reasons) for one in starts)
    causes = ("started by its planned time", "started by the parameters' arrival")
    assert all(any(cause in one for cause in causes) for one in starts)
    assert wrong == []


@pytest.mark.parametrize("width", [320, 900])
def test_no_part_of_warm_up_is_wider_than_the_page(warm, width):
    """Reasons in words break into lines."""
    show, _ = warm
    page, wrong = show(viewport={"width": width, "height": 900})
    sizes = (
        "[document.documentElement, ...document.querySelectorAll('.drlnb-box')].map(e => e.scrollWidth - e.clientWidth)"
    )
    assert set(page.evaluate(sizes)) == {0}
    assert wrong == []
