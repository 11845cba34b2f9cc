"""The leak fixtures, the network guard and the supervisor of ``.ci/run`` see what is planted for them."""

import sys
from pathlib import Path

import pytest

from tests.gates.conftest import SHARED

pytestmark = pytest.mark.thorough

LEAKS = {
    "thread": (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True, name='lost').start()",
        "lost",
    ),
    "child process": ("import subprocess\nkeep.append(subprocess.Popen(['sleep', '60']))", "sleep 60"),
    "file descriptor": ("import os\nos.open(__file__, os.O_RDONLY)", "test_leaky.py"),
    "shared memory": ("from pathlib import Path\nPath('/dev/shm/{pid}').touch()", SHARED),
}
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_leaky.py")


def leaky(body, pid="", marker=""):
    """Write a test module whose only test runs `body`, after it a fixture that ends what was leaked."""
    inner = "".join(f"    {line}\n" for line in body.replace("{pid}", str(pid)).splitlines())
    return (
        "import pytest\n\nkeep = []\n\n\n"
        "@pytest.fixture(autouse=True, scope='module')\ndef _end():\n    yield\n"
        "    for one in keep:\n        one.kill()\n        one.wait()\n\n\n"
        f"{marker}def test_leaky():\n{inner}"
    )


def test_a_tidy_test_is_green(tree):
    """Threads, children and descriptors that end within the test are no leaks."""
    tidy = (
        "import subprocess, threading\n"
        "thread = threading.Thread(target=int)\nthread.start()\nthread.join()\n"
        "subprocess.run(['true'], check=True)\nopen(__file__).close()"
    )
    ran = tree.plant({"tests/test_leaky.py": leaky(tidy)}).run(*PYTEST)
    assert ran.green, ran.output


@pytest.mark.parametrize("what", LEAKS)
def test_a_leak_is_red(tree, what):
    """A test that leaves something behind fails, and the message names it."""
    body, name = LEAKS[what]
    try:
        ran = tree.plant({"tests/test_leaky.py": leaky(body, pid=SHARED)}).run(*PYTEST)
    finally:
        Path(f"/dev/shm/{SHARED}").unlink(missing_ok=True)
    assert ran.red_for(f"{what} left behind", name), ran.output


def test_a_mapping_of_a_closed_memory_file_is_red(tree):
    """Shared memory whose descriptor is closed still counts while it is mapped."""
    body = (
        "import mmap, os, sys, types\n"
        "sys.modules['drlnb.runtime.ipc.shared_memory'] = types.ModuleType('stand-in')\n"
        "fd = os.memfd_create('drlnb-store')\nos.truncate(fd, 4096)\n"
        "globals()['view'] = mmap.mmap(fd, 4096)\nos.close(fd)"
    )
    ran = tree.plant({"tests/test_leaky.py": leaky(body)}).run(*PYTEST)
    assert ran.red_for("memory file left behind"), ran.output


def test_an_orphan_of_a_cluster_test_is_red(tree):
    """A process titled ``drlnb ...`` that outlives its starter is found, whoever is its parent now."""
    body = (
        "import subprocess, sys\n"
        "lost = 'from setproctitle import setproctitle as s; s(\"drlnb lost\"); import time; time.sleep(12)'\n"
        "start = 'import subprocess as s, sys, time; s.Popen(sys.argv[1:], start_new_session=True); time.sleep(1)'\n"
        "subprocess.run([sys.executable, '-c', start, sys.executable, '-c', lost], check=True)"
    )
    planted = tree.plant({"tests/test_leaky.py": leaky(body, marker="@pytest.mark.cluster\n")})
    supervised = (".ci/supervise.py", "--limit-s", "60", "--", sys.executable)
    for words in (PYTEST, (*supervised, *PYTEST)):
        ran = planted.run(*words, "-m", "cluster")
        assert ran.red_for("process left behind", "drlnb lost"), ran.output


def test_a_process_that_outlives_the_tests_is_red_and_killed(tree):
    """The supervisor names and kills what a green command leaves, and passes its exit code on otherwise."""
    command = ("sh", "-c", "setsid sleep 61 & exit 0")
    ran = tree.run(".ci/supervise.py", "--limit-s", "60", "--", *command)
    assert ran.red_for("outlived the command", "sleep 61"), ran.output
    assert tree.run(".ci/supervise.py", "--limit-s", "60", "--", "sh", "-c", "exit 5").code == 5
    assert tree.run(".ci/supervise.py", "--limit-s", "0.2", "--", "sleep", "60").code == 124


def test_the_network_is_out_of_reach(tree):
    """A test cannot connect to an address that is not loopback (here one reserved for documentation)."""
    body = "import socket\nwith socket.socket() as s:\n    s.settimeout(0.1)\n    s.connect(('192.0.2.1', 9))"
    ran = tree.plant({"tests/test_leaky.py": leaky(body)}).run(*PYTEST)
    assert ran.red_for("may not reach 192.0.2.1"), ran.output


def test_a_slow_default_test_is_red_and_a_slow_tier_is_not(tree):
    """Above the limit a test without a tier fails; one with a marker may take its time."""
    body = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end:\n    pass"
    ran = tree.plant({"tests/test_leaky.py": leaky(body)}).run(*PYTEST, "--limit-s", "0.4")
    assert ran.red_for("mark its tier"), ran.output
    slow = leaky(body, marker="@pytest.mark.slow\n")
    ran = tree.plant({"tests/test_leaky.py": slow}).run(*PYTEST, "-m", "slow", "--limit-s", "0.4")
    assert ran.green, ran.output


def test_a_warning_an_unknown_marker_and_no_tests_are_red(tree):
    """Pytest's own strictness: warnings are errors, markers are known, an empty tier does not pass."""
    ran = tree.plant({"tests/test_leaky.py": leaky("import warnings\nwarnings.warn('old')")}).run(*PYTEST)
    assert ran.red_for("UserWarning: old"), ran.output
    ran = tree.plant({"tests/test_leaky.py": leaky("pass", marker="@pytest.mark.planted\n")}).run(*PYTEST)
    assert ran.red_for("planted"), ran.output
    ran = tree.plant({"tests/test_leaky.py": leaky("pass")}).run(*PYTEST, "-m", "notebook")
    assert ran.code == 5, ran.output


def test_tests_run_in_random_order(tree):
    """Two seeds give two orders of twenty tests."""
    tests = "".join(f"def test_{i}():\n    pass\n\n\n" for i in range(20))
    tree.plant({"tests/test_leaky.py": tests})
    one, two = (tree.run(*PYTEST, "-vv", f"--randomly-seed={seed}") for seed in (1, 2))
    assert one.green, one.output
    assert two.green, two.output
    order = [[line for line in ran.output.splitlines() if "PASSED" in line] for ran in (one, two)]
    assert len(order[0]) == 20
    assert [line.split()[0] for line in order[0]] != [line.split()[0] for line in order[1]]
