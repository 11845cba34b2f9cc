"""A field shows what is in force: typed into every field of every panel, as fast as hands can; and nothing moves."""

import pytest

from tests.browser.lab import until
from tests.browser.scenes import SOON_MS

#: Between two keys, in milliseconds: faster than anybody types, and than a message comes back.
KEY_MS = 10
#: A line of the sentence.
LINE_PX = 23
ALONE = [
    "from drlnb.widgets.faces import distribution, swapping\nd = distribution(n_hosts=32)\nd",
    "s = swapping(net='nature_cnn', budget_mib=2048.0, planner='qtable', multiple=1.4)\ns",
    "import drlnb\nfleet = drlnb.Fleet(slots=1)\nl = fleet.panel(env='CartPole-v1')\nl",
]
#: Panel -> its field -> what is typed and taken, and what is typed and refused, with words of the reason.
TYPED = {
    "distribution": {
        "plan": ("multitree", None),
        "m": ("12", ("40", "at most 32")),
        "chunks": ("16", None),
        "model_mb": ("123.5", ("-1", "from 1e-06")),
        "link": ("1GbE", None),
        "latency_us": ("250", ("1e99", "from 0 to")),
        "overhead_us": ("75", ("-3", "from 0 to")),
        "kill": ("2", ("1.5", "whole number")),
        "shard": ("5", ("301", "from 0 to 299")),
    },
    "swapping": {
        "net": ("impala", None),
        "multiple": ("1.25", ("-1", "from 0.01")),
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
}
#: What has nothing to choose yet.
WITHOUT = {"distribution": set(), "swapping": set(), "launcher": {"run"}}
#: Names of the fields of a panel that are seen, in order.
NAMES = """root => [...root.querySelectorAll('[class*=drlnb-t-]')].filter(one => one.offsetParent
    && one.querySelector('input, select') && !one.querySelector('[class*=drlnb-t-], .drlnb')
    && !one.matches('.drlnb-t-distribution, .drlnb-t-swapping, .drlnb-t-launcher'))
  .map(one => one.className.match(/drlnb-t-(\\w+)/)[1])"""
#: Where the fields and pictures of a panel stand within it.
PLACES = """root => [...root.querySelectorAll('input, select, canvas, .noUi-target')].filter(one => one.offsetParent)
  .map(one => { const a = one.getBoundingClientRect(), b = root.getBoundingClientRect();
                return Math.round(a.top - b.top); })"""


class Fields:
    """The fields of one panel, and what the kernel takes them for."""

    def __init__(self, sheet, kind: str, variable: str) -> None:
        self.sheet, self.page, self.variable = sheet, sheet.page, variable
        self.root = sheet.page.locator(f".drlnb-t-{kind}").first

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
        return self.field(name).evaluate("one => one.tagName === 'SELECT' ? one.selectedOptions[0].text : one.value")

    def in_force(self, name: str) -> object:
        """Return what the panel computes with."""
        knob = f"knob {name}" if name in {"w", "epsilon", "alpha", "gamma", "n_trials"} else name
        return self.sheet.kernel_eval(f"{self.variable}.fields[{knob!r}]._value()")

    def refused(self) -> str:
        return self.root.get_by_test_id("refused").first.inner_text()


def same(shown: str, value: object, label: str = "") -> bool:
    """Whether a field shows a value, as text or as a number."""
    try:
        return float(shown) == float(str(value))
    except ValueError:
        return shown in {str(value), label}


@pytest.mark.parametrize("kind", list(TYPED))
def test_typed_fast_a_field_shows_what_is_in_force(notebook, tmp_path, kind):
    """Taken as a whole, or refused with its reason, which goes with the next choice; fields and panel always agree."""
    i = list(TYPED).index(kind)
    notebook.open([ALONE[i]] if i != 1 else [ALONE[0].partition("\n")[0], ALONE[1]])
    notebook.page.set_viewport_size({"width": 900, "height": 1400})
    notebook.run_all()
    notebook.script("window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();")
    fields = Fields(notebook, kind, "dsl"[i])
    fields.root.get_by_test_id("sentence").first.wait_for(timeout=SOON_MS)
    assert until(lambda: "epsilon" in fields.root.evaluate(NAMES) or kind != "swapping", SOON_MS / 1e3)
    assert set(fields.root.evaluate(NAMES)) == TYPED[kind].keys() | WITHOUT[kind]
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
                same(fields.shown(name), text)
                and same(text, fields.in_force(name), label="" if name in {"show", "chunks"} else text)
            ),
            5.0,
        )
        if name in {"show", "chunks"}:  # labels of values
            agree = fields.shown(name) == text
        assert agree, (name, text, fields.shown(name), fields.in_force(name))
        assert until(lambda: fields.refused() == "", SOON_MS / 1e3), "the reason goes with its cause"
        assert fields.root.get_by_test_id("message").count() == 0
        after = fields.root.evaluate(PLACES)
        moved = [place - was for was, place in zip(before, after, strict=True)]
        # A planner's name may give the sentence a third line.
        assert max(moved) <= (LINE_PX if kind == "swapping" else 0), f"something moved when {name} was typed"
    notebook.screenshot(tmp_path / "typed.png")
