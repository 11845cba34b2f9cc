"""Drive a real JupyterLab from a script: a server of its own, and a page in Chromium for each notebook.

The server has its own token, port and folders, so it neither reads nor changes what its user has; the browser reaches
the loopback address only.  It is served below a path, as behind the proxy of a hub, and started as Binder starts it.
The server ends when its standard input does: when the process that started it ends, even by SIGKILL; Chromium ends
likewise by the pipe of its driver.  Playwright is imported where it is used: it belongs to the extra ``test``.
"""

import ast
import contextlib
import http.client
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

import psutil

from tests.survivors import survivors

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Playwright, WebSocket

__all__ = ["BROWSER_FLAGS", "LabServer", "Sheet", "browser_path", "chromium", "missing", "until"]

T = TypeVar("T")
#: Names under which distributions ship Chromium.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: Nothing that calls home; no address but this machine's can be resolved.
BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
#: Longest wait for the server's first answer and for its end, for a notebook to open, and for its cells to end.
_START_S, _END_S, _OPEN_S, _CELLS_S = 60.0, 15.0, 45.0, 60.0
#: Pause between two looks at something that has no event of its own, in seconds.
_LOOK_S = 0.02
#: Where the server's pages are: below a path, as a hub's proxy has them.
BASE = "/user/x/"
#: Starts a server in Binder's image; a wheel's tests run without it.
_START = Path(__file__).resolve().parents[2] / "binder" / "start"
#: Starts on another port before the server counts as broken.
_ATTEMPTS = 3
#: The news toast covers a corner of every screenshot; a save must not ask.
_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}
#: JupyterLab, which ends when its standard input does.
_LAB = """
import os, runpy, signal, threading
def watch():
    while os.read(0, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=watch, daemon=True).start()
runpy.run_module("jupyterlab", run_name="__main__", alter_sys=True)
"""

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


def browser_path() -> str | None:
    """Return where Chromium is, None if it is nowhere."""
    return next((path for name in _BROWSERS if (path := shutil.which(name))), None)


def missing() -> str:
    """Return what is missing to open a notebook in a browser; empty if nothing is."""
    wanting = [name for name in ("jupyterlab", "playwright") if find_spec(name) is None]
    wanting += ["Chromium"] if browser_path() is None else []
    return f"not installed: {', '.join(wanting)}" if wanting else ""


def until(look: Callable[[], T], timeout_s: float) -> T:
    """Look until something true is seen or the time is up; return what was seen last."""
    end = time.monotonic() + timeout_s
    while not (seen := look()) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    return seen


@contextlib.contextmanager
def chromium(playwright: "Playwright") -> "Iterator[Browser]":
    """Start Chromium for the time of the block."""
    browser = playwright.chromium.launch(executable_path=browser_path(), headless=True, args=list(BROWSER_FLAGS))
    try:
        yield browser
    finally:
        browser.close()


class LabServer:
    """One JupyterLab on a free port of the loopback interface.

    Parameters
    ----------
    root
        Folder for all that it writes; notebooks are served from ``root/notebooks``.
    python
        Interpreter of the environment that it runs in; None: this one.

    Raises
    ------
    RuntimeError
        If it does not answer; the message holds the end of its log.
    """

    def __init__(self, root: Path, python: str | None = None) -> None:
        self.root, self.python = root, python or sys.executable
        self.notebooks = root / "notebooks"
        self.token = secrets.token_hex(16)
        self.notebooks.mkdir(parents=True, exist_ok=True)
        for name, values in _SETTINGS.items():
            path = root / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values), encoding="utf-8")
        for _ in range(_ATTEMPTS):
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", 0))
                self.port = int(sock.getsockname()[1])
            self._process = self._start()
            if until(self._answers, _START_S) and self._process.poll() is None:
                return
            self.stop()
        log = (root / "lab.log").read_text(encoding="utf-8")[-2000:]
        raise RuntimeError(f"JupyterLab does not answer on port {self.port}:\n{log}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def url(self, name: str) -> str:
        """Return the address of a notebook in a workspace of its own."""
        place = f"{BASE}lab/workspaces/{Path(name).stem}/tree/{quote(name)}"
        return f"http://127.0.0.1:{self.port}{place}?token={self.token}"

    def memory_bytes(self) -> int:
        """Return the memory of the server and all that it started; what several share is counted once."""
        total = 0
        for process in [root := psutil.Process(self.pid), *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().pss
        return total

    def _start(self) -> "subprocess.Popen[bytes]":
        words = [str(_START)] if _START.exists() else []
        words += [self.python, "-c", _LAB, "--no-browser", "--ip=127.0.0.1", f"--port={self.port}"]
        words += [
            f"--ServerApp.base_url={BASE}",
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={self.token}",
        ]
        words += ["--LabApp.expose_app_in_browser=True", f"--ServerApp.root_dir={self.notebooks}"]
        words += ["--allow-root"] if os.geteuid() == 0 else []
        foreign = ("JUPYTER", "IPYTHON", "JPY_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        environment |= {f"JUPYTER_{name.upper()}_DIR": str(self.root / name) for name in ("config", "data", "runtime")}
        for name in ("settings", "workspaces"):
            environment[f"JUPYTERLAB_{name.upper()}_DIR"] = str(self.root / name)
        environment |= {"IPYTHONDIR": str(self.root / "ipython"), "JUPYTER_PREFER_ENV_PATH": "1"}
        environment["PYTHONWARNINGS"] = "default"
        with (self.root / "lab.log").open("ab") as log:
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.notebooks,
                env=environment,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            return True  # it has ended: waiting longer is of no use
        with contextlib.suppress(OSError, http.client.HTTPException):
            return "version" in self.rest("GET", "/api")
        return False

    def rest(self, method: str, path: str, body: object = None) -> Any:
        """Ask the server; return its JSON answer, whatever form that has, None where there is none.

        Raises
        ------
        RuntimeError
            If it refuses.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            text = json.dumps(body) if body is not None else None
            connection.request(method, BASE.rstrip("/") + path, text, {"Authorization": f"token {self.token}"})
            response = connection.getresponse()
            answer = response.read()
        if response.status >= http.client.BAD_REQUEST and response.status != http.client.NOT_FOUND:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:200]!r}")
        return json.loads(answer) if answer else None

    def stop(self) -> None:
        """End the server, its kernels and whatever they started."""
        below: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.pid).children(recursive=True)
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        for process in survivors(below, 2.0):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


class Sheet:
    """A notebook in a page of its own.

    Parameters
    ----------
    lab
        Its server.
    page
        A Playwright page.
    name
        The notebook's path below the server's folder; its last part is unique.
    """

    def __init__(self, lab: LabServer, page: "Page", name: str) -> None:
        self.lab, self.page, self.name = lab, page, name
        #: The notebook's file; its folder is where its kernel works.
        self.path = lab.notebooks / name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        #: (seconds of the monotonic clock, bytes) of each message that the server sent.
        self.received: list[tuple[float, int]] = []
        page.on("websocket", self._follow)

    def _follow(self, websocket: "WebSocket") -> None:
        websocket.on("framereceived", lambda data: self.received.append((time.monotonic(), len(data))))

    def open(self, cells: Sequence[str] | None = None) -> None:
        """Open the notebook and wait for its kernel; `cells` writes it first."""
        if cells is not None:
            from nbformat import v4, write

            kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
            code = [v4.new_code_cell(text) for text in cells]
            write(v4.new_notebook(cells=code, metadata={"kernelspec": kernel}), str(self.path))
        self.page.goto(self.lab.url(self.name) + "&reset")
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the notebook is shown and its kernel has answered."""
        self.page.wait_for_function("() => Boolean(window.jupyterapp)", timeout=_OPEN_S * 1e3)
        self.wait_for(_READY + "return ready && ['idle', 'busy'].includes(kernel.status);", _OPEN_S)

    def wait_for(self, body: str, timeout_s: float) -> None:
        """Wait until a piece of JavaScript, which knows `panel`, returns true."""
        self.page.wait_for_function(f"() => {{ {self._with_panel(body)} }}", timeout=timeout_s * 1e3)

    def script(self, body: str) -> Any:
        """Run a piece of asynchronous JavaScript, which knows `panel`; return what it returns, whatever that is."""
        return self.page.evaluate(f"async () => {{ {self._with_panel(body)} }}")

    def _with_panel(self, body: str) -> str:
        return _PANEL.replace("NAME", json.dumps(self.name)) + body

    def run_cell(self, index: int, *, wait: bool = True, timeout_s: float = _CELLS_S) -> None:
        """Run one cell; the command itself resolves only when it has ended, so it is not waited for in the page."""
        self.script(f"""
            window.jupyterapp.shell.activateById(panel.id);
            panel.content.deselectAll();
            panel.content.activeCellIndex = {index};
            window.jupyterapp.commands.execute('notebook:run-cell');
        """)
        if wait:
            self.wait_idle(timeout_s)

    def wait_idle(self, timeout_s: float = _CELLS_S, *, errors_ok: bool = False) -> None:
        """Wait until no cell runs.

        Raises
        ------
        AssertionError
            If a cell ended with an exception; a picture that never comes is most often a missing import.
        """
        self.wait_for(_READY + _IDLE, timeout_s)
        if not errors_ok and (errors := self.errors()):
            raise AssertionError("; ".join(errors))

    def errors(self) -> list[str]:
        """Return the exceptions that cells ended with, and outputs that could not be drawn."""
        raised = self.script("""
            return panel.content.widgets.filter(cell => cell.model.outputs).flatMap(cell => cell.model.outputs.toJSON())
              .filter(output => output.output_type === 'error').map(output => output.ename + ': ' + output.evalue);
        """)
        undrawn = self.page.locator(".jp-OutputArea-output .jp-mod-error").all_inner_texts()
        return [*raised, *undrawn]

    def output(self, index: int) -> "Locator":
        """Return the locator of what a cell shows."""
        cells = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell")
        return cells.nth(index).locator(".jp-OutputArea-output")

    def kernel_eval(self, expression: str) -> Any:
        """Return the value of an expression in the kernel: plain data, of whatever form.

        Raises
        ------
        RuntimeError
            If the kernel raises.
        """
        code = f"__import__('json').dumps({expression})"
        reply = self.script(_READY + _ASK.replace("CODE", json.dumps(code)))
        if reply["status"] != "ok":
            raise RuntimeError(f"{reply['ename']}: {reply['evalue']}")
        return json.loads(ast.literal_eval(reply["data"]["text/plain"]))

    def save(self) -> None:
        """Save the notebook: only then are widgets back after a reload."""
        self.script("await panel.context.save();")
