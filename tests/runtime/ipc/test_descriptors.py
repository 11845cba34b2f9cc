"""A process may open as many files as the system permits."""

import json
import resource
import subprocess
import sys

import pytest

from drlnb.runtime.ipc import descriptors
from drlnb.runtime.ipc.descriptors import raise_limit

#: Lowers its limits, raises them again and prints what it may open.
CHILD = """
import json, resource
from drlnb.runtime.ipc.descriptors import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 500))
print(json.dumps([raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


def test_the_soft_limit_is_raised_to_the_hard_one():
    """Nothing else is changed; a second time nothing is."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == [500, [500, 500]]


@pytest.mark.parametrize(
    ("limits", "wanted", "told"),
    [
        ((1024, resource.RLIM_INFINITY), (65536, resource.RLIM_INFINITY), 65536),
        ((1024, 10**9), (65536, 10**9), 65536),
        ((100_000, 10**9), None, 100_000),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, 0),
    ],
)
def test_no_limit_is_lowered_and_none_raised_beyond_use(monkeypatch, limits, wanted, told):
    """Some programs walk through all descriptors that they may have."""
    asked = []
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(descriptors.resource, "setrlimit", lambda which, pair: asked.append(pair))
    assert raise_limit() == told
    assert asked == ([wanted] if wanted else [])


def test_a_system_that_permits_less_than_it_says_keeps_its_limit(monkeypatch):
    """That is told, not raised."""

    def refuse(which, pair):
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda which: (256, 4096))
    monkeypatch.setattr(descriptors.resource, "setrlimit", refuse)
    assert raise_limit() == 256
