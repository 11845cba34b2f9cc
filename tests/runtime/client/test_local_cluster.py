"""What is left of a local cluster."""

import subprocess

import psutil
import pytest

from drlnb.runtime.client.local_cluster import wait_gone


@pytest.fixture
def careless():
    """Start a process that never reaps its child, which ends at once; give both."""
    with subprocess.Popen(["/bin/sh", "-c", "true & echo $!; exec sleep 60"], stdout=subprocess.PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        yield psutil.Process(parent.pid), child
        parent.kill()


def test_who_has_ended_is_gone_though_nobody_reaps_it(careless):
    """In a container whose first process reaps nothing, closing a cluster waits for nobody."""
    parent, child = careless
    assert wait_gone([child], 60.0) == []
    assert child.status() == psutil.STATUS_ZOMBIE
    assert wait_gone([parent, child], 0.05) == [parent]


def test_who_is_reaped_meanwhile_is_gone():
    """A number that no process has any more is no error."""
    with subprocess.Popen(["/bin/true"]) as process:
        gone = psutil.Process(process.pid)
        process.wait()
    assert wait_gone([gone], 60.0) == []
