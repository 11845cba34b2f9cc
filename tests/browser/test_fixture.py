"""The fixture itself works, and sees what should not be."""

import pytest

from tests.browser.lab import until

pytestmark = pytest.mark.slow

CLICKS = """
import ipywidgets
label, button = ipywidgets.Label("0 clicks"), ipywidgets.Button(description="Count")
button.on_click(lambda _: setattr(label, "value", f"{int(label.value.split()[0]) + 1} clicks"))
ipywidgets.VBox([button, label])
"""
STAYS = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
"""


def test_cells_run_and_the_kernel_answers(notebook):
    """What a cell prints is on the page; cells run alone or together; expressions are evaluated in the same kernel."""
    notebook.open(["a = 6 * 7", "print('answer', a)", "a = 2"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    assert "answer 42" in notebook.output(1).inner_text()
    assert notebook.kernel_eval("{'a': a, 'text': \"it's\"}") == {"a": 42, "text": "it's"}
    notebook.run_all()
    assert notebook.kernel_eval("a") == 2
    notebook.run_cell(notebook.add_cell("a = 3"))
    assert notebook.kernel_eval("a") == 3
    notebook.add_cell("import no_such_module")
    with pytest.raises(AssertionError, match="ModuleNotFoundError: No module named 'no_such_module'"):
        notebook.run_all()


def test_a_click_reaches_the_kernel_and_comes_back(notebook, page):
    """A button of ipywidgets changes a label by its callback, also after a reload of the saved notebook."""
    notebook.open([CLICKS])
    notebook.run_all()
    page.get_by_role("button", name="Count").click()
    page.get_by_text("1 clicks").wait_for(timeout=5_000)
    notebook.save()
    notebook.reload()
    page.get_by_role("button", name="Count").click(timeout=15_000)
    page.get_by_text("2 clicks").wait_for(timeout=5_000)
    assert notebook.kernel_eval("label.value") == "2 clicks"


def test_what_happens_on_the_page_turns_the_test_red(open_notebook):
    """Planted: the page asks another machine for a picture, and a script throws."""

    def plant():
        with open_notebook() as n:
            n.open(["1"])
            n.page.evaluate("() => { new Image().src = 'http://example.invalid/x.png' }")
            n.page.evaluate("() => { setTimeout(() => { throw new Error('planted') }) }")
            assert until(lambda: n.page.evaluate("() => 1") and n.page_errors and n.external, 5)

    with pytest.raises(
        AssertionError, match=r"external request: http://example\.invalid/x\.png; page error: .*planted"
    ):
        plant()


def test_what_is_left_turns_the_test_red(open_notebook, lab):
    """Planted: a kernel that no notebook of the test has, and a process that does not end with its kernel."""

    def plant():
        with open_notebook() as n:
            n.patience_s = 1.0
            n.open([STAYS])
            n.run_all()
            lab.rest("POST", "/api/kernels", {"name": "python3"})

    with pytest.raises(AssertionError, match=r"kernel left: [^;]*; process left: .*signal\.pause"):
        plant()
    assert lab.kernels() == set()
