"""Modules whose parameters lie in the host store."""

import faulthandler
import multiprocessing
import resource
import signal

import numpy as np
import pytest
import torch
from torch import nn

from drlnb.distribution.flat import pack
from drlnb.distribution.host_view import HostView
from drlnb.records.errors import ConfigError, LayoutMismatch
from drlnb.runtime.ipc.host_store import N_SLOTS, HostStore


def network(value):
    """Make a network with a normaliser, all of whose numbers are `value`."""
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.fill_(value)
    return module


@pytest.fixture
def store():
    """Make a store for such networks."""
    store = HostStore(len(pack(network(0))))
    yield store
    store.close()


@pytest.fixture
def view(store):
    """Attach to it."""
    view = HostView.attach(store.path)
    yield view
    view.close()


def values(module):
    return {value for tensor in module.state_dict().values() for value in tensor.flatten().tolist()}


def test_a_path_is_needed_outside_of_dask():
    """The error says where one is had."""
    with pytest.raises(ConfigError, match=r"no Dask task: have one return store_path\(\)"):
        HostView.attach(task="a")


def test_a_bound_module_follows_the_versions(store, view):
    """From slot to slot without a copy, buffers with it; a rollout sees one version, whatever is published."""
    actor = network(9)
    view.bind(actor)
    with view.pinned() as version:
        assert (version, values(actor)) == (0, {9})
    for version in range(1, 21, 10):
        store.write(version, pack(network(version)))
        with view.pinned() as held:
            start = view.bytes.ctypes.data
            assert held == version
            assert start < actor[0].weight.data_ptr() < start + store.n_bytes
            expected = actor(torch.ones(2, 4))
            for later in range(version + 1, version + 2 * N_SLOTS):
                assert store.write(later, pack(network(later)))
            assert values(actor) == {version}
            assert torch.equal(actor(torch.ones(2, 4)), expected)
    assert store.applied() == (1, 11)
    assert view.refresh()
    assert values(actor) == {10 + 2 * N_SLOTS}


def test_a_normaliser_over_a_rollout_changes_nothing_of_the_version(store, view):
    """Its statistics are a copy, even if somebody trains it."""
    store.write(1, pack(network(1)))
    actor = network(0)
    view.bind(actor)
    with view.pinned():
        before = view.bytes.tobytes()
        actor.train()
        actor(torch.randn(8, 4))
        assert actor[1].num_batches_tracked.item() == 2
        assert view.bytes.tobytes() == before
    store.write(2, pack(network(2)))
    with view.pinned():
        assert not actor.training
        assert values(actor) == {2}


def test_a_module_of_another_layout_is_refused_each_time(store, view):
    """The version does not count as applied, and no slot stays held; a module that fits goes on."""
    store.write(1, pack(network(1)))
    view.bind(nn.Linear(4, 3))
    for _ in range(2):
        with pytest.raises(LayoutMismatch, match=r"have '0.weight' float32 \(3, 4\), Linear has 'weight'"):
            view.refresh()
    assert store.applied() == (0, 0)
    for version in range(2, 2 * N_SLOTS):
        assert store.write(version, pack(network(version)))
    actor = network(0)
    view.bind(actor)
    assert view.refresh()
    assert values(actor) == {2 * N_SLOTS - 1}


def test_a_layout_that_changes_is_noticed():
    """In a store of the same size by the version itself; arrays need no module."""
    store = HostStore(len(pack({"a": np.ones(3)})))
    view = HostView.attach(store.path)
    store.write(1, pack({"a": np.ones(3)}))
    view.refresh()
    assert view.arrays()["a"].tolist() == [1, 1, 1]
    store.write(2, pack({"b": np.ones(2)}))
    view.refresh()
    assert view.arrays()["b"].tolist() == [1, 1]
    view.close()
    store.close()


def test_a_copy_keeps_the_weights(store):
    """As long as the actor likes."""
    view, actor = HostView.attach(store.path, copy=True), network(0)
    view.bind(actor)
    store.write(1, pack(network(1)))
    assert view.refresh()
    for version in range(2, 2 * N_SLOTS):
        store.write(version, pack(network(version)))
    assert values(actor) == {1}
    view.close()


def _spoils(path):
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    view, actor = HostView.attach(path), network(0)
    view.bind(actor)
    view.refresh()
    actor[0].weight.zero_()


def test_a_module_that_writes_into_its_parameters_ends_alone(store):
    """In the child's process; the version is as it was."""
    payload = pack(network(1))
    store.write(1, payload)
    process = multiprocessing.get_context("fork").Process(target=_spoils, args=(store.path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGSEGV
    process.close()
    assert store.newest.tobytes() == payload.tobytes()


@pytest.mark.parametrize(
    ("path", "said"), [(3, "takes a path, as store_path.* got 3"), ("nowhere", "no store is at 'nowhere': attach by")]
)
def test_a_path_that_leads_nowhere_is_told(path, said):
    """With what leads there."""
    with pytest.raises(ConfigError, match=said):
        HostView.attach(path)
