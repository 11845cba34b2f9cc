"""How is a real JupyterLab driven from a script?  A server of our own, and a browser for each notebook.

The server has its own token, port and folders, so it neither reads nor changes what its user has; the browser reaches
the loopback address only.  The server hangs on a life line (``anchor.py``): it ends, with its kernels and whatever they
started, when the process that asked for it ends, even by SIGKILL; Chromium ends likewise by the pipe of its driver.
Playwright is imported where it is used: it belongs to the extra ``test``.
"""

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
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil

__all__ = ["BROWSER_FLAGS", "LabServer", "browser_path", "chromium", "chromium_of", "left_behind", "missing", "until"]

#: Holds the server.
_ANCHOR = str(Path(__file__).with_name("anchor.py"))
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
#: Longest wait for the server's first answer, and for a process to end, in seconds.
_START_S, _END_S = 60.0, 15.0
#: Pause between two looks at something that has no event of its own, in seconds.
_LOOK_S = 0.02
#: Starts on another port before the server counts as broken.
_ATTEMPTS = 3
#: The news toast covers a corner of every screenshot; a save must not ask.
_SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}


def browser_path() -> str | None:
    """Return where Chromium is, None if it is nowhere."""
    return next((found for name in _BROWSERS if (found := shutil.which(name))), None)


def missing() -> str:
    """Say what is missing to open a notebook in a browser; empty if nothing is."""
    wanting = [name for name in ("jupyterlab", "playwright") if find_spec(name) is None]
    if browser_path() is None:
        wanting.append("Chromium")
    return f"not installed: {', '.join(wanting)}" if wanting else ""


def until(look: Callable[[], Any], timeout_s: float) -> Any:
    """Look until something true is seen or the time is up; return what was seen last."""
    end = time.monotonic() + timeout_s
    while not (seen := look()) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    return seen


def left_behind(processes: dict[int, tuple[float, str]], timeout_s: float) -> dict[int, str]:
    """Wait for processes to end; return those that do not, by pid.

    Parameters
    ----------
    processes
        pid -> (when it was made, its words), as of :meth:`LabServer.processes`.
    timeout_s
        Longest wait.
    """

    def alive() -> dict[int, str]:
        found = {}
        for pid, (made, words) in processes.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.create_time() == made and process.status() != psutil.STATUS_ZOMBIE:
                    found[pid] = words
        return found

    until(lambda: not alive(), timeout_s)
    return alive()


class LabServer:
    """One JupyterLab on a free port of the loopback interface.

    Parameters
    ----------
    root
        Folder for all that it writes; notebooks are served from ``root/notebooks``.

    Raises
    ------
    RuntimeError
        If it does not answer; the message holds the end of its log.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notebooks = root / "notebooks"
        self.token = secrets.token_hex(16)
        self._write_settings()
        for _ in range(_ATTEMPTS):
            self.port = _free_port()
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
        """Process id of the server: the first child of its anchor."""
        children = psutil.Process(self._process.pid).children()
        return int(min(children, key=psutil.Process.create_time).pid)

    def url(self, name: str) -> str:
        """Return the address of a notebook in a workspace of its own."""
        return f"http://127.0.0.1:{self.port}/lab/workspaces/{Path(name).stem}/tree/{quote(name)}?token={self.token}"

    # ------------------------------------------------------------------ start
    def _write_settings(self) -> None:
        self.notebooks.mkdir(parents=True, exist_ok=True)
        for name, values in _SETTINGS.items():
            path = self.root / "settings" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values), encoding="utf-8")

    def _environment(self) -> dict[str, str]:
        mine = {
            name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "IPYTHON", "JPY_"))
        }
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        mine |= {name: str(self.root / folder) for name, folder in folders.items()}
        return mine | {"JUPYTER_PREFER_ENV_PATH": "1", "PYTHONWARNINGS": "default"}

    def _start(self) -> subprocess.Popen[bytes]:
        words = [
            *(sys.executable, "-P", _ANCHOR),  # -P: the folder beside it holds no modules for it
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={self.port}"),
            *("--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}"),
            *("--LabApp.expose_app_in_browser=True", f"--ServerApp.root_dir={self.notebooks}"),
        ]
        if os.geteuid() == 0:
            words.append("--allow-root")
        with (self.root / "lab.log").open("ab") as log:
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,  # the life line: its other end is ours
                stdout=log,
                stderr=log,
                cwd=self.notebooks,
                env=self._environment(),
                start_new_session=True,
            )

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            return True  # it has said its last word: waiting longer is of no use
        with contextlib.suppress(OSError, http.client.HTTPException):
            return "version" in self.rest("GET", "/api")
        return False

    # ------------------------------------------------------------------ ask
    def rest(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the server; return its JSON answer, None where it has none.

        Raises
        ------
        RuntimeError
            If it refuses.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, {"Authorization": f"token {self.token}"})
            response = connection.getresponse()
            said = response.read()
        if response.status >= http.client.BAD_REQUEST and response.status != http.client.NOT_FOUND:
            raise RuntimeError(f"{method} {path}: {response.status} {said[:200]!r}")
        return json.loads(said) if said else None

    def kernels(self) -> set[str]:
        """Return the ids of its kernels."""
        return {kernel["id"] for kernel in self.rest("GET", "/api/kernels")}

    def kernel_of(self, name: str) -> str | None:
        """Return the id of the kernel of a notebook, None if it has none."""
        for session in self.rest("GET", "/api/sessions"):
            if session["path"] == name:
                return str(session["kernel"]["id"])
        return None

    def end_kernel(self, kernel: str) -> None:
        """End a kernel, as "Shut Down Kernel" does."""
        self.rest("DELETE", f"/api/kernels/{kernel}")

    def processes(self, name: str | None = None) -> dict[int, tuple[float, str]]:
        """Return the processes below the server, or those of a notebook's kernel: pid -> (when it was made, words)."""
        found = {}
        with contextlib.suppress(psutil.NoSuchProcess, ValueError):  # ValueError: the anchor has no child any more
            for kernel in psutil.Process(self.pid).children():
                if name is None or _serves(kernel, name):
                    for process in (kernel, *kernel.children(recursive=True)):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            words = " ".join(process.cmdline()) or process.name()
                            found[process.pid] = (process.create_time(), words)
        return found

    # ------------------------------------------------------------------ the end
    def stop(self) -> None:
        """End the server, its kernels and whatever they started."""
        below = self.processes()
        if self._process.poll() is None:
            with contextlib.suppress(OSError, RuntimeError, http.client.HTTPException):
                for kernel in self.kernels():
                    self.end_kernel(kernel)
            below |= self.processes()
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._process.stdin.close()  # type: ignore[union-attr]  # now the anchor ends whatever is left
        self._process.wait()
        for pid in left_behind(below, 2.0):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()


def _serves(process: psutil.Process, name: str) -> bool:
    """Whether a process is the kernel of a notebook: the server names the notebook in the kernel's environment."""
    with contextlib.suppress(psutil.Error):
        return process.environ().get("JPY_SESSION_NAME", "").endswith(f"/{name}")
    return False


@contextlib.contextmanager
def chromium(playwright: Any) -> Iterator[Any]:
    """Start Chromium for the time of the block."""
    browser = playwright.chromium.launch(executable_path=browser_path(), headless=True, args=list(BROWSER_FLAGS))
    try:
        yield browser
    finally:
        browser.close()


@contextlib.contextmanager
def chromium_of(playwright: Any, profile: Path) -> Iterator[Any]:
    """Start Chromium with a folder for what it keeps, as a person's has; give its context, whose cache may be warm.

    Parameters
    ----------
    playwright
        The driver.
    profile
        The folder; used by one Chromium at a time, made if there is none.
    """
    context = playwright.chromium.launch_persistent_context(
        str(profile), executable_path=browser_path(), headless=True, args=list(BROWSER_FLAGS)
    )
    try:
        yield context
    finally:
        context.close()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
