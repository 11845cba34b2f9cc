"""Watch over notebooks in a real JupyterLab: what a test must not leave behind, and what only tests do."""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.browser.lab import BROWSER_FLAGS, LabServer, Sheet, browser_path, until

__all__ = ["WatchedServer", "WatchedSheet", "chromium_of", "left_behind"]

_HOSTS = {"127.0.0.1", "localhost", "::1"}


def left_behind(processes: dict[int, tuple[float, str]], timeout_s: float) -> dict[int, str]:
    """Wait for processes to end; return those that do not, by pid.

    Parameters
    ----------
    processes
        pid -> (when it was made, its words), as of :meth:`WatchedServer.processes`.
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


class WatchedServer(LabServer):
    """A server that knows its kernels and their processes."""

    def kernels(self) -> set[str]:
        """Return the ids of its kernels."""
        return {kernel["id"] for kernel in self.rest("GET", "/api/kernels")}

    def kernel_of(self, name: str) -> str | None:
        """Return the id of the kernel of a notebook, None if it has none."""
        sessions = self.rest("GET", "/api/sessions")
        return next((str(session["kernel"]["id"]) for session in sessions if session["path"] == name), None)

    def end_kernel(self, kernel: str) -> None:
        """End a kernel, as "Shut Down Kernel" does."""
        self.rest("DELETE", f"/api/kernels/{kernel}")

    def processes(self, name: str) -> dict[int, tuple[float, str]]:
        """Return the processes of a notebook's kernel: pid -> (when it was made, words)."""
        found = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            for kernel in psutil.Process(self.pid).children():
                if _serves(kernel, name):
                    for process in (kernel, *kernel.children(recursive=True)):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            words = " ".join(process.cmdline()) or process.name()
                            found[process.pid] = (process.create_time(), words)
        return found


def _serves(process: psutil.Process, name: str) -> bool:
    """Whether a process is the kernel of a notebook: the server names the notebook in the kernel's environment."""
    with contextlib.suppress(psutil.Error):
        return process.environ().get("JPY_SESSION_NAME", "").endswith(f"/{name}")
    return False


@contextlib.contextmanager
def chromium_of(playwright: Any, profile: Path) -> Iterator[Any]:
    """Start Chromium with a folder for what it keeps, as a user's has; give its context, whose cache may be warm.

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


class WatchedSheet(Sheet):
    """A notebook whose page is watched for requests to other machines, exceptions and errors on its console."""

    lab: WatchedServer

    def __init__(self, lab: WatchedServer, page: Any, name: str) -> None:
        super().__init__(lab, page, name)
        #: Addresses outside this machine that the page asked for.
        self.external: list[str] = []
        #: Exceptions that no script on the page caught, and what scripts wrote to the console as an error.
        self.page_errors: list[str] = []
        #: Regular expression for errors on the console that the test brings about; empty: none.
        self.expected = ""
        #: Seconds that the notebook's processes have to end after their kernel.
        self.patience_s = 15.0
        page.on("request", lambda request: self._note(request.url))
        page.on("websocket", lambda websocket: self._note(websocket.url))
        page.on("pageerror", self._page_error)
        page.on("console", self._console)

    def _page_error(self, error: object) -> None:
        # JupyterLab catches no error of its own questions that a restart of the kernel cuts off.
        if "create_subshell_request" not in str(error):
            self.page_errors.append(str(error))

    def _note(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname not in _HOSTS:
            self.external.append(url)

    def _console(self, message: Any) -> None:
        if "Could not restore the debugger state: Canceled future" in message.text:
            return  # JupyterLab's own question to a kernel that is restarted, or ended, meanwhile
        if message.type == "error" and not (self.expected and re.search(self.expected, message.text)):
            self.page_errors.append(f"{message.text} ({message.location.get('url', '')})")

    def reload(self) -> None:
        """Reload the page, as F5 does, and wait for the notebook."""
        self.page.goto(self.lab.url(self.name))
        self.wait_ready()

    def run_all(self, *, wait: bool = True, timeout_s: float = 60.0) -> None:
        """Run every cell; the command itself resolves only when all have ended, so it is not waited for in the page."""
        self.script("""
            window.jupyterapp.shell.activateById(panel.id);
            panel.content.deselectAll();
            window.jupyterapp.commands.execute('notebook:run-all-cells');
        """)
        if wait:
            self.wait_idle(timeout_s)

    def add_cell(self, source: str) -> int:
        """Append a code cell; return its index."""
        cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        return int(
            self.script(f"""
            const cells = panel.content.model.sharedModel;
            cells.insertCell(cells.cells.length, {json.dumps(cell)});
            return cells.cells.length - 1;
        """)
        )

    def interrupt(self) -> None:
        """Interrupt the kernel, as the button with the square does."""
        self.script("await panel.sessionContext.session.kernel.interrupt();")

    def restart(self) -> None:
        """Restart the kernel: all that it knew is gone."""
        self.script("await panel.sessionContext.session.kernel.restart();")
        self.wait_ready()

    def screenshot(self, path: Path) -> Path:
        """Take a picture of the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.page.screenshot(animations="disabled"))  # Playwright would leave a thread for the file
        return path

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
