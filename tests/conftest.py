"""What every test gets: nothing may leak out of it, and nothing may leave this machine.

Each test ends with the threads, child processes, file descriptors and shared memory that it began with.  Tests marked
``cluster`` are looked at more closely: also processes that were orphaned, and mappings whose descriptor is closed.
"""

import contextlib
import gc
import ipaddress
import logging
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import hypothesis
import psutil
import pytest

TIERS = ("cluster", "browser", "notebook", "gpu", "slow", "thorough")
#: A default test that takes longer is listed at the end.
SLOW_S = 0.25
COMPUTED_S = pytest.StashKey[float]()

hypothesis.settings.register_profile("default", max_examples=30, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=30, deadline=None, database=None, print_blob=True)
hypothesis.settings.register_profile("nightly", max_examples=500, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))

# -- what is there ---------------------------------------------------------------------------------------------------

#: Files that libraries keep open for good once they have used them.
_CACHED_FILES = ("/dev/urandom", "/dev/null", "/dev/nvidia", "/usr/share/", "/.coverage", "/.hypothesis/", "coverage.")
#: How the names of our shared memory begin; the tests of this file plant some of their own.
_SHARED = os.environ.get("DRLNB_TEST_SHARED", "drlnb")
#: Names the pytest-xdist worker that a process was started by; inherited by all below it.
_WORKER = "PYTEST_XDIST_WORKER"
#: Threads that distributed keeps for the life of the process once it was used; only cluster tests may start them.
_DASK_POOLS = ("Dask-Offload", "TCP-Executor", "Dask-Default-Threads", "Profile", "AsyncProcess Dask")
#: Threads that distributed keeps while a client lives.
_CLIENT_THREADS = ("IO loop", "Dask-")
_HELPER_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _client_lives() -> bool:
    client = sys.modules.get("distributed.client")
    return client is not None and any(one.status != "closed" for one in list(client.Client._instances))


def _may_stay(thread: threading.Thread, cluster: bool) -> bool:
    if not cluster:
        return False
    return thread.name.startswith(_DASK_POOLS) or (_client_lives() and thread.name.startswith(_CLIENT_THREADS))


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> dict[int, str]:
    """Return the processes below this one; one system call where there is none."""
    found: dict[int, str] = {}
    if not _has_child():
        return found
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(child.cmdline()) or f"[{child.name()}, {child.status()}]"
            if not any(helper in words for helper in _HELPER_PROCESSES):
                found[child.pid] = words
    return found


def _descriptors() -> dict[int, str]:
    found: dict[int, str] = {}
    for fd in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():  # noqa: PTH112, PTH208 - speed
        with contextlib.suppress(OSError):
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
    return found


def _new_descriptors(before: dict[int, str]) -> list[str]:
    new = Counter(_descriptors().values()) - Counter(before.values())
    if len(new) == 0:
        return []
    listing = f"/proc/{os.getpid()}/fd"  # the descriptor of the look itself
    return [name for name in new.elements() if name != listing and not any(part in name for part in _CACHED_FILES)]


def _shared_memory() -> set[str]:
    try:
        return {name for name in os.listdir("/dev/shm") if name.startswith(_SHARED)}  # noqa: PTH208
    except OSError:
        return set()


class _Mappings:
    """How many memory files of drlnb are mapped here, open or not; looks only after something was mapped."""

    def __init__(self) -> None:
        self._changed, self._count = False, 0
        sys.addaudithook(self._note_mapping)

    def _note_mapping(self, event: str, _arguments: object) -> None:
        self._changed |= event == "mmap.__new__"

    def count(self) -> int:
        """Return their number, or at most that of the last look if nothing was mapped since."""
        if self._changed:
            with contextlib.suppress(OSError):
                self._count = Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:drlnb")
            self._changed = self._count > 0
        return self._count


_MAPPINGS = _Mappings()


def _orphans(before: Iterable[int] = ()) -> dict[int, str]:
    """Return processes titled ``drlnb ...`` whose starters are gone, and that were not there before."""
    titled: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["cmdline"]):
        if " ".join(process.info["cmdline"] or ()).startswith("drlnb "):
            titled[process.pid] = process
    # Orphans go to the machine's first process or to the nearest ancestor of ours that takes them; those of another
    # session hang below a process that is neither drlnb's nor an ancestor of ours.
    ours = {1, os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = {}
    for pid, process in titled.items():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.environ().get(_WORKER) != os.environ.get(_WORKER):
                continue  # of a test that runs beside this one
            nearest = next((parent.pid for parent in process.parents() if parent.pid not in titled), 1)
            if pid not in before and nearest in ours:
                found[pid] = " ".join(process.info["cmdline"]).strip()
    return found


def _wait_empty(look: Callable[[], list[str]], patience_s: float) -> list[str]:
    """Look until nothing is found or patience is over; return what is left."""
    found, collected, begun = look(), False, time.monotonic()
    while found and time.monotonic() < begun + patience_s:
        time.sleep(0.01)
        if not collected and time.monotonic() > begun + patience_s / 10.0:  # it may be held by a cycle
            collected = gc.collect() >= 0
        found = look()
    return found


class Before:
    """What there was before a test; :meth:`leaks` says what there is more."""

    def __init__(self, cluster: bool) -> None:
        self.cluster = cluster
        self.threads, self.children, self.descriptors = _threads(), _children(), _descriptors()
        self.shared_memory, self.mappings = _shared_memory(), _MAPPINGS.count()
        self.orphans = _orphans() if cluster else {}

    def leaks(self) -> list[str]:
        """Return one line for each thing that is left, waiting a little for what is just ending."""
        patience_s = 5.0 if self.cluster else 0.5
        return [f"{what} left behind: {name}" for what, look in self._looks() for name in _wait_empty(look, patience_s)]

    def _looks(self) -> list[tuple[str, Callable[[], list[str]]]]:
        looks = [
            ("thread", self._new_threads),
            ("child process", lambda: [f"{p} {c}" for p, c in _children().items() if p not in self.children]),
            ("file descriptor", lambda: _new_descriptors(self.descriptors)),
            ("shared memory", lambda: sorted(_shared_memory() - self.shared_memory)),
            ("memory file", lambda: ["mapping of drlnb's host store"] * (_MAPPINGS.count() - self.mappings)),
        ]
        if self.cluster:
            looks.append(("process", lambda: [f"{p} {c}" for p, c in _orphans(self.orphans).items()]))
        return looks

    def _new_threads(self) -> list[str]:
        # A thread that has not started yet, or that C code made, counts like any other.
        return [t.name for t in _threads() - self.threads if t.is_alive() and not _may_stay(t, self.cluster)]


def _open_device() -> None:
    """Have CUDA, where there is a device, open what it keeps for the life of the process."""
    import torch

    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")


@pytest.fixture(autouse=True)
def _leaves_nothing(request: pytest.FixtureRequest):
    """Fail a test that leaves a thread, a child process, a descriptor or shared memory behind."""
    if request.node.get_closest_marker("gpu") is not None:
        _open_device()
    before = Before(cluster=request.node.get_closest_marker("cluster") is not None)
    yield
    if found := before.leaks():
        pytest.fail("; ".join(found), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _session_leaves_nothing(request: pytest.FixtureRequest):
    """Fail the last test of a session after which processes, shared memory or run directories are left."""
    here = request.config.invocation_params.dir
    folders = [folder for folder in (here / "runs", here / "drlnb-runs") if not folder.exists()]
    cluster = any(item.get_closest_marker("cluster") for item in request.session.items)
    children, memory, orphans = _children(), _shared_memory(), _orphans() if cluster else {}

    def left() -> list[str]:
        found = [f"child process {pid} {words}" for pid, words in _children().items() if pid not in children]
        found += [f"shared memory {name}" for name in _shared_memory() - memory]
        found += [f"process {pid} {words}" for pid, words in (_orphans(orphans) if cluster else {}).items()]
        return found + [f"folder {folder}" for folder in folders if folder.exists()]

    yield
    if found := _wait_empty(left, 5.0 if cluster else 0.5):
        pytest.fail("left behind by the session: " + "; ".join(found), pytrace=False)


# -- nothing leaves this machine -------------------------------------------------------------------------------------


def _refuse_far(sock: socket.socket, address: object) -> None:
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(address, tuple):
        return
    host = str(address[0])
    with contextlib.suppress(ValueError):
        if host in {"", "localhost"} or ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            return
    raise RuntimeError(f"a test may not reach {host}: only loopback addresses")


@pytest.fixture(scope="session", autouse=True)
def _loopback_only():
    """Refuse connections to anything but this machine's loopback interface."""
    patch = pytest.MonkeyPatch()

    def guard(name: str, *, datagrams: bool) -> None:
        real = getattr(socket.socket, name)

        def guarded(sock: socket.socket, *arguments: object) -> object:
            # Connecting a datagram socket sends nothing: it is how one asks for one's own address.
            if datagrams or sock.type != socket.SOCK_DGRAM:
                _refuse_far(sock, arguments[-1])
            return real(sock, *arguments)

        patch.setattr(socket.socket, name, guarded)

    guard("connect", datagrams=False)
    guard("connect_ex", datagrams=False)
    guard("sendto", datagrams=True)
    yield
    patch.undo()


# -- the same everywhere ---------------------------------------------------------------------------------------------


def pytest_collection():
    """Collect no garbage while tests are collected: what is made stays."""
    gc.disable()


def pytest_collection_finish():
    """Make the table of all characters, from which texts are drawn: it takes seconds, and is no test's fault.

    What was loaded and collected stays to the end: the garbage collector need not walk through it after each test.
    Torch's fifty loggers hand what they log to the root: pytest need not attach itself to each of them for each test.
    """
    hypothesis.strategies.text(max_size=1).validate()
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.startswith("torch"):
            logger.propagate = True
    gc.freeze()
    gc.set_threshold(700, 10, 100)  # what is left is small, and much of it lives long
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that makes slow default tests red."""
    parser.addoption("--limit-s", type=float, help="fail default tests whose call takes more processor seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Forget this user's settings of drlnb and Dask, and use no window system."""
    for name in [name for name in os.environ if name.startswith(("DRLNB_", "DASK_"))]:
        del os.environ[name]
    os.environ["SDL_VIDEODRIVER"] = "dummy"


def _processor_s() -> float:
    """Return what this process, and those that it has waited for, have computed: a busy machine does not add to it."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Measure what a test computes, if that is limited."""
    is_limited = item.config.getoption("--limit-s") is not None
    before = _processor_s() if is_limited else 0.0
    try:
        return (yield)
    finally:
        item.stash[COMPUTED_S] = _processor_s() - before if is_limited else 0.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """List slow default tests, and fail those above ``--limit-s``."""
    report = yield
    if report.when == "call" and report.duration > SLOW_S and not any(map(item.get_closest_marker, TIERS)):
        report.user_properties.append(("slow_s", report.duration))
        limit_s, took_s = item.config.getoption("--limit-s"), item.stash.get(COMPUTED_S, 0.0)
        if limit_s is not None and report.passed and took_s > limit_s:
            report.outcome = "failed"
            report.longrepr = f"computed for {took_s:.2f} s; a default test may take {limit_s:g} s: mark its tier"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the default tests that are too slow for their tier."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    slow = {report.nodeid: value for report in reports for name, value in report.user_properties if name == "slow_s"}
    for nodeid, seconds in sorted(slow.items(), key=lambda pair: -pair[1])[:20]:
        terminalreporter.write_line(f"slower than {SLOW_S} s: {seconds:.2f} s {nodeid}")


@pytest.fixture(scope="session")
def playwright():
    """Start the driver that starts browsers: one for all tests, since a second one refuses to run beside it."""
    sync_api = pytest.importorskip("playwright.sync_api")
    driver = sync_api.sync_playwright().start()
    yield driver
    driver.stop()
