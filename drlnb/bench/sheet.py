"""What does a script do with a notebook that is open in a browser?  Run, wait, look, ask the kernel."""

import ast
import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from drlnb.bench.jupyter import LabServer, left_behind

__all__ = ["Sheet", "write_notebook"]

#: Longest wait for a notebook to open, and for its cells to end, in seconds.
OPEN_S, CELLS_S = 45.0, 60.0
_HOSTS = {"127.0.0.1", "localhost", "::1"}

#: JavaScript: the panel of the notebook that is open in the page (by name: a page may show two).
_PANEL = """
const panel = [...window.jupyterapp.shell.widgets('main')].find(one => one.context && one.context.path === NAME);
"""
_READY = """
const kernel = panel && panel.sessionContext.session && panel.sessionContext.session.kernel;
const ready = Boolean(kernel) && panel.isVisible && kernel.connectionStatus === 'connected';
"""
_IDLE = """
const busy = panel.content.widgets.some(cell => cell.model.sharedModel.executionState === 'running');
return ready && kernel.status === 'idle' && !busy;
"""
_ASK = """
const reply = await kernel.requestExecute(
  {code: '', silent: true, store_history: false, user_expressions: {asked: CODE}}).done;
return reply.content.user_expressions.asked;
"""


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    """Write a notebook of code cells.

    Parameters
    ----------
    path
        Where; its folder exists.
    cells
        Their sources.
    """
    rows = [
        {"id": f"c{n}", "cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for n, text in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": rows}
    path.write_text(json.dumps(notebook), encoding="utf-8")


class Sheet:
    """A notebook in a page of its own.

    Parameters
    ----------
    lab
        Its server.
    page
        A Playwright page; what it asks for and what goes wrong on it is noted from here on.
    name
        The notebook's path below the server's folder; its last part is unique.
    """

    def __init__(self, lab: LabServer, page: Any, name: str) -> None:
        self.lab, self.page, self.name = lab, page, name
        #: The notebook's file; its folder is where its kernel works.
        self.path = lab.notebooks / name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        #: Addresses outside this machine that the page asked for.
        self.external: list[str] = []
        #: Exceptions that no script on the page caught, and what scripts wrote to the console as an error.
        self.page_errors: list[str] = []
        #: Regular expression for errors on the console that the one who looks brings about; empty: none.
        self.expected = ""
        #: (seconds of the monotonic clock, bytes) of each message that the server sent.
        self.received: list[tuple[float, int]] = []
        #: Seconds that the notebook's processes have to end after their kernel.
        self.patience_s = 15.0
        page.on("request", lambda request: self._note(request.url))
        page.on("pageerror", lambda error: self.page_errors.append(str(error)))
        page.on("console", self._heard)
        page.on("websocket", self._follow)

    def _note(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname not in _HOSTS:
            self.external.append(url)

    def _heard(self, said: Any) -> None:
        if said.type == "error" and not (self.expected and re.search(self.expected, said.text)):
            self.page_errors.append(f"{said.text} ({said.location.get('url', '')})")

    def _follow(self, websocket: Any) -> None:
        self._note(websocket.url)
        websocket.on("framereceived", lambda data: self.received.append((time.monotonic(), len(data))))

    # ------------------------------------------------------------------ open
    def open(self, cells: Sequence[str] | None = None) -> None:
        """Open the notebook and wait for its kernel; `cells` writes it first."""
        if cells is not None:
            write_notebook(self.path, cells)
        self.page.goto(self.lab.url(self.name) + "&reset")
        self.wait_ready()

    def reload(self) -> None:
        """Reload the page, as F5 does, and wait for the notebook."""
        self.page.goto(self.lab.url(self.name))
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the notebook is shown and its kernel has answered."""
        self.page.wait_for_function("() => Boolean(window.jupyterapp)", timeout=OPEN_S * 1e3)
        self.wait_for(_READY + "return ready && kernel.status === 'idle' || ready && kernel.status === 'busy';", OPEN_S)

    def wait_for(self, body: str, timeout_s: float) -> None:
        """Wait until a piece of JavaScript, which knows `panel`, returns true."""
        self.page.wait_for_function(f"() => {{ {self._with_panel(body)} }}", timeout=timeout_s * 1e3)

    def script(self, body: str) -> Any:
        """Run a piece of asynchronous JavaScript, which knows `panel`; return what it returns."""
        return self.page.evaluate(f"async () => {{ {self._with_panel(body)} }}")

    def _with_panel(self, body: str) -> str:
        return _PANEL.replace("NAME", json.dumps(self.name)) + body

    # ------------------------------------------------------------------ run
    def run_all(self, *, wait: bool = True, timeout_s: float = CELLS_S) -> None:
        """Run every cell; the command itself resolves only when all have ended, so nobody waits for it."""
        self.script("""
            window.jupyterapp.shell.activateById(panel.id);
            panel.content.deselectAll();
            window.jupyterapp.commands.execute('notebook:run-all-cells');
        """)
        if wait:
            self.wait_idle(timeout_s)

    def run_cell(self, index: int, *, wait: bool = True, timeout_s: float = CELLS_S) -> None:
        """Run one cell."""
        self.script(f"""
            window.jupyterapp.shell.activateById(panel.id);
            panel.content.deselectAll();
            panel.content.activeCellIndex = {index};
            window.jupyterapp.commands.execute('notebook:run-cell');
        """)
        if wait:
            self.wait_idle(timeout_s)

    def add_cell(self, source: str) -> int:
        """Append a code cell; return its index."""
        text = json.dumps(source)
        return int(
            self.script(f"""
            const cells = panel.content.model.sharedModel;
            const cell = {{cell_type: 'code', source: {text}, metadata: {{}}, outputs: [], execution_count: null}};
            cells.insertCell(cells.cells.length, cell);
            return cells.cells.length - 1;
        """)
        )

    def wait_idle(self, timeout_s: float = CELLS_S, *, errors_ok: bool = False) -> None:
        """Wait until no cell runs.

        Raises
        ------
        AssertionError
            If a cell ended with an exception; a picture that never comes is most often a missing import.
        """
        self.wait_for(_READY + _IDLE, timeout_s)
        if not errors_ok and (errors := self.errors()):
            raise AssertionError("; ".join(errors))

    def interrupt(self) -> None:
        """Interrupt the kernel, as the button with the square does."""
        self.script("await panel.sessionContext.session.kernel.interrupt();")

    def restart(self) -> None:
        """Restart the kernel: all that it knew is gone."""
        self.script("await panel.sessionContext.session.kernel.restart();")
        self.wait_ready()

    # ------------------------------------------------------------------ look
    def errors(self) -> list[str]:
        """Return the exceptions that cells ended with, and outputs that could not be drawn."""
        raised = self.script("""
            return panel.content.widgets.filter(cell => cell.model.outputs).flatMap(cell => cell.model.outputs.toJSON())
              .filter(output => output.output_type === 'error').map(output => output.ename + ': ' + output.evalue);
        """)
        undrawn = self.page.locator(".jp-OutputArea-output .jp-mod-error").all_inner_texts()
        return [*raised, *undrawn]

    def output(self, index: int) -> Any:
        """Return the locator of what a cell shows."""
        cells = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell")
        return cells.nth(index).locator(".jp-OutputArea-output")

    def kernel_eval(self, expression: str) -> Any:
        """Return the value of an expression in the kernel; plain data only.

        Raises
        ------
        RuntimeError
            If the kernel raises.
        """
        code = f"__import__('json').dumps({expression})"
        said = self.script(_READY + _ASK.replace("CODE", json.dumps(code)))
        if said["status"] != "ok":
            raise RuntimeError(f"{said['ename']}: {said['evalue']}")
        text = said["data"]["text/plain"]
        return json.loads(_unquoted(text))

    def save(self) -> None:
        """Save the notebook: only then are widgets back after a reload."""
        self.script("await panel.context.save();")

    def screenshot(self, path: Path) -> Path:
        """Take a picture of the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.page.screenshot(animations="disabled"))  # Playwright would leave a thread for the file
        return path

    # ------------------------------------------------------------------ the end
    def close(self, *, kernels_before: set[str]) -> list[str]:
        """End the notebook's kernel and close the page; return what should not have been, in words.

        Parameters
        ----------
        kernels_before
            Kernels that others had when this notebook was opened.
        """
        faults = [f"external request: {url}" for url in self.external]
        faults += [f"page error: {text} ({n} times)" for text, n in Counter(self.page_errors).items()]
        processes = self.lab.processes(self.name)
        kernel = self.lab.kernel_of(self.name)
        self.page.close()
        if kernel is not None:
            self.lab.end_kernel(kernel)
        for stranger in self.lab.kernels() - kernels_before:
            faults.append(f"kernel left: {stranger}")
            self.lab.end_kernel(stranger)
        for pid, words in left_behind(processes, self.patience_s).items():
            faults.append(f"process left: {pid} {words}")
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        return faults


def _unquoted(text: str) -> str:
    """Return the string that Python's repr stands for."""
    return str(ast.literal_eval(text))
