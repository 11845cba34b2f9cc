"""A field shows what is in force: typed into every field of every panel, as fast as hands can; and nothing moves."""

import pytest

from tests.browser.lab import until
from tests.browser.scenes import RECORDED, SOON_MS

#: Between two keys, in milliseconds: faster than anybody types, and than a message comes back.
KEY_MS = 10
#: A line of the sentence.
LINE_PX = 23
FACES = "from drlnb.widgets.faces import distribution, swapping\n"
PLAY = f"import drlnb\nrun = drlnb.play({str(RECORDED)!r}, speed=None)\n"
#: Panel -> the cell that shows it as `p`.
CELLS = {
    "distribution": FACES + "p = distribution(n_hosts=32)\np",
    "swapping": FACES + "p = swapping(net='nature_cnn', budget_mib=2048.0, planner='qtable', batch=7225)\np",
    "launcher": "import drlnb\nfleet = drlnb.Fleet(slots=1)\np = fleet.panel(env='CartPole-v1')\np",
    "leasing": PLAY + "p = run.panel('leasing')\np",
    "distribution of a run": PLAY + "p = run.panel('distribution', plan='multitree', n_hosts=32)\np",
    "swapping of a run": PLAY + "p = run.panel('swapping', planner='qtable')\np",
}
#: Panel -> its field -> what is typed and taken, and what is typed and refused, with words of the reason.
TYPED = {
    "distribution": {
        "plan": ("multitree", None),
        "m": ("12", ("40", "at most 32")),
        "chunks": ("16", None),
        "model_mb": ("123.5", ("-1", "from 1e-6")),
        "link": ("1GbE", None),
        "latency_us": ("250", ("1e99", "from 0 to")),
        "overhead_us": ("75", ("-3", "from 0 to")),
        "kill": ("2", ("1.5", "whole number")),
        "shard": ("5", ("301", "in 0..299")),
    },
    "swapping": {
        "net": ("impala", None),
        "batch": ("1200", ("1.5", "whole number")),
        "preset": ("h200_tf32", None),
        "budget_mib": ("1500", ("0.001", "from 0.015625")),
        "w": ("0.8", ("7", "from 0 to 1")),
        "epsilon": ("0.35", ("7", "from 0 to 1")),
        "alpha": ("0.45", ("-1", "from 0 to 1")),
        "gamma": ("0.55", ("2", "from 0 to 1")),
        "n_trials": ("150", ("1.5", "whole number")),
        "planner": ("qtable:n_trials=50,w=0.25", ("clever", "must be one of")),
        "show": ("Q-learning", None),
    },
    "launcher": {
        "env": ("MountainCar-v0", None),
        "algo": ("dqn", None),
        "seeds": ("11-13", None),
        "total_timesteps": ("54321", None),
        "slots": ("1", None),
    },
    "leasing": {"window": ("2 min", None), "hold": ("last", None), "task": ("y", None)},
}
TYPED["distribution of a run"] = {
    **TYPED["distribution"],
    "shard": ("0", None),  # its versions went out whole
    "task": ("y", None),
}
TYPED["swapping of a run"] = {
    **{name: TYPED["swapping"][name] for name in ("budget_mib", "w", "epsilon", "n_trials", "planner", "show")},
    "task": ("y", None),
}
#: What has nothing to choose yet.
WITHOUT = {"launcher": {"run"}, "swapping of a run": {"alpha", "gamma"}}
#: Fields whose list has words for values; and what is marked in the end, as it is not in force.
LABELLED = {"show", "chunks", "window"}
MARKED = {
    "leasing": {"hold"},
    "distribution of a run": {"plan", "m", "chunks"},
    "swapping of a run": {"budget_mib", "planner"},
}
#: Names of the fields of a panel that are seen, in order.
NAMES = """root => [...root.querySelectorAll('[class*=drlnb-t-]')].filter(one => one.offsetParent
    && one.querySelector('input, select') && !one.querySelector('[class*=drlnb-t-], .drlnb')
    && !one.matches('.drlnb-t-distribution, .drlnb-t-swapping, .drlnb-t-launcher, .drlnb-t-leasing'))
  .map(one => one.className.match(/drlnb-t-(\\w+)/)[1])"""
#: Where the fields and pictures of a panel stand within it.
PLACES = """root => [...root.querySelectorAll('input, select, canvas, .noUi-target')].filter(one => one.offsetParent)
  .map(one => { const a = one.getBoundingClientRect(), b = root.getBoundingClientRect();
                return Math.round(a.top - b.top); })"""

#: Whether a panel is no wider than the window lets it be.
INSIDE = "root => root.getBoundingClientRect().right <= innerWidth"


class Fields:
    """The fields of one panel, and what the kernel takes them for."""

    def __init__(self, sheet, kind: str) -> None:
        self.sheet, self.page = sheet, sheet.page
        self.root = sheet.page.locator(f".drlnb-t-{kind.partition(' ')[0]}").first

    def field(self, name: str):
        return self.root.locator(f".drlnb-t-{name} :is(input, select)").first

    def type(self, name: str, text: str) -> None:
        """Type a value in the place of the old one, and leave the field."""
        field = self.field(name)
        if field.evaluate("one => one.tagName") == "SELECT":
            field.select_option(label=text)
            return
        field.click()
        field.press("Control+a")
        self.page.keyboard.type(text, delay=KEY_MS)
        field.press("Tab")

    def shown(self, name: str) -> str:
        """Return what stands in a field."""
        script = "one => one.tagName === 'SELECT' ? one.selectedOptions[0].text : one.value"
        return self.field(name).evaluate(script).replace("\N{NO-BREAK SPACE}", " ")

    def in_force(self, name: str) -> object:
        """Return what the panel computes with."""
        return self.sheet.kernel_eval(f"p.fields.values.shown({name!r})")

    def refused(self) -> str:
        return self.root.get_by_test_id("refused").first.inner_text()


def same(shown: str, value: object) -> bool:
    """Whether a field shows a value, as text or as a number."""
    try:
        return float(shown) == float(str(value))
    except ValueError:
        return shown == str(value)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "distribution" else pytest.mark.slow) for kind in TYPED]
)
def test_typed_fast_a_field_shows_what_is_in_force(notebook, tmp_path, kind):
    """Taken as a whole, or refused with its reason, which goes with the next choice; fields and panel always agree."""
    notebook.open([CELLS[kind]])
    notebook.page.set_viewport_size({"width": 900, "height": 1400})
    notebook.run_all()
    notebook.script("window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();")
    fields = Fields(notebook, kind)
    fields.root.get_by_test_id("sentence").first.wait_for(timeout=SOON_MS)
    names = TYPED[kind].keys() | WITHOUT.get(kind, set())
    assert until(lambda: set(fields.root.evaluate(NAMES)) == names, SOON_MS / 1e3), fields.root.evaluate(NAMES)
    assert until(lambda: fields.root.evaluate(INSIDE), SOON_MS / 1e3), "the notebook has followed the window's width"
    before = fields.root.evaluate(PLACES)
    for name, (text, wrong) in TYPED[kind].items():
        if wrong:
            was = fields.in_force(name)
            fields.type(name, wrong[0])
            assert until(lambda wrong=wrong: wrong[1] in fields.refused(), SOON_MS / 1e3), (name, fields.refused())
            assert fields.in_force(name) == was
            assert until(lambda name=name, was=was: same(fields.shown(name), was), SOON_MS / 1e3), (name, was)
            notebook.screenshot(tmp_path / f"refused-{name}.png")
        fields.type(name, text)
        agree = until(
            lambda name=name, text=text: (
                same(fields.shown(name), text) and (name in LABELLED or same(text, fields.in_force(name)))
            ),
            SOON_MS / 1e3,
        )
        assert agree, (name, text, fields.shown(name), fields.in_force(name))
        assert until(lambda: fields.refused() == "", SOON_MS / 1e3), "the reason goes with its cause"
        assert fields.root.get_by_test_id("message").count() == 0
        after = fields.root.evaluate(PLACES)
        moved = [place - was for was, place in zip(before, after, strict=True)]
        # A long sentence, of a planner with all its parameters or of a run, grows by a line or two, and stays so.
        may = 0 if kind in {"distribution", "launcher", "leasing"} else 2 * LINE_PX
        assert max(moved) <= may, f"something moved when {name} was typed"
    marked = fields.root.locator(".drlnb-chosen").evaluate_all(
        "all => all.map(one => one.closest('[class*=drlnb-t-]').className.match(/drlnb-t-(\\w+)/)[1])"
    )
    assert set(marked) == MARKED.get(kind, set())
    said = fields.root.get_by_test_id("notes").first.inner_text()
    assert ("chosen, not in force: " in said) == bool(marked)
    notebook.screenshot(tmp_path / "typed.png")
