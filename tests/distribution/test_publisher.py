"""Publish to real Dask workers: what readers see, who comes and goes, who publishes last, what is refused."""

import contextlib
import functools
import hashlib
import logging
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import dask
import numpy as np
import pytest
import torch
from distributed import Client, wait, worker_client

import drlnb.distribution
from drlnb.distribution import Link, Publisher
from drlnb.planning.distribution import LEARNER, Plan, Send
from drlnb.planning.registry import PlannerFailed
from drlnb.records.columns.distribution import ActorsInstalled, HostCompleted
from drlnb.records.errors import ConfigError, PeerError
from tests.distribution.at_one_address import arrays_at_one_address, tensors_at_one_address
from tests.runtime.live import ForeignCluster, wait_until

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "distribution.md"


@pytest.fixture(scope="module")
def open_client(tmp_path_factory):
    """Open a client of four workers; all is there that lives as long as it does."""
    foreign = ForeignCluster(tmp_path_factory.mktemp("cluster"), ())
    foreign.add_workers(4)
    # It would open connections of its own, now and then.
    with (
        dask.config.set({"distributed.client.scheduler-info-interval": "1h", "distributed.client.heartbeat": "1h"}),
        Client(scheduler_file=str(foreign.file)) as client,
    ):
        client.wait_for_workers(4, 60)
        on_each(client, int)
        yield client
    foreign.close()


@pytest.fixture
def client(open_client):
    """Return the client; connections that it keeps for later are closed after the test."""
    yield open_client

    async def collect():
        open_client.rpc.collect()

    open_client.sync(collect)


def on_each(client, function, *args):
    """Run a function as a Dask task on every worker; return what they return, by address."""
    futures = {at: client.submit(function, *args, workers=[at], pure=False) for at in client.nthreads()}
    wait(list(futures.values()))
    return {at: future.result() for at, future in futures.items()}


def read(task="parameters"):
    """Return (version, tensors) that a reader on this worker finds."""
    with drlnb.distribution.HostView.attach(task=task) as view, view.pinned() as version:
        return version, {name: array.copy() for name, array in view.arrays().items()}


def digests(task="parameters"):
    """Return (version, SHA-256 of each tensor's bytes): what is long is compared where it lies."""
    version, arrays = read(task)
    return version, {name: hashlib.sha256(array).hexdigest() for name, array in arrays.items()}


def infer(module, inputs, task="parameters"):
    """Return what a module that is bound to the store computes."""
    with drlnb.distribution.HostView.attach(task=task) as view:
        view.bind(module)
        with view.pinned():
            return module(inputs)


@pytest.mark.parametrize(
    "plan", ["star", "tree:k=2", "binomial", "chain:c=3", "relay:m=4", "relay:m=2", "multitree:m=2,c=2", "auto"]
)
def test_every_plan_brings_the_same_bytes_to_all(client, plan):
    """Mixed dtypes, tied, empty and strided tensors; what is changed right after publish() changes nothing."""
    shared = np.arange(70_001, dtype=np.float32)
    tensors = {
        "a": shared,
        "tied": shared,
        "strided": np.arange(60.0).reshape(6, 10)[::2, ::3],
        "none": np.empty((0, 3), np.int16),
        "flags": np.array([True, False]),
        "odd": np.array([np.nan, -np.inf]),
    }
    expected = {name: array.copy() for name, array in tensors.items()}
    with Publisher(client, plan=plan) as publisher:
        assert len(publisher.hosts) == 4
        publication = publisher.publish(tensors)
        shared[:] = -1.0
        report = publication.result(20.0)
        found = on_each(client, read)
    assert (report.version, report.n_hosts, report.failed) == (1, 4, {})
    assert (report.planner, report.plan) == (plan, "star" if plan == "auto" else plan)
    assert set(report.publish_s_of) == set(report.arrival_s) == set(publisher.hosts)
    sent = report.egress_bytes
    assert sum(sent.values()) == 4 * report.n_bytes
    if plan != "auto":
        assert sent["learner"] == {"star": 4, "tree:k=2": 2, "binomial": 3}.get(plan, 1) * report.n_bytes
    assert report.models_per_s == pytest.approx(1.0 / report.publish_s)
    for version, arrays in found.values():
        assert version == 1
        for name, array in expected.items():
            np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize("make", [tensors_at_one_address, arrays_at_one_address])
def test_what_lies_at_one_address_arrives_as_what_it_is(client, make):
    """Conjugated, negated, of another byte order, stride, dtype or shape: each name has its own values everywhere."""
    tensors, expected = make()
    with Publisher(client, plan="relay:m=4") as publisher:
        publisher.publish(tensors).result(20.0)
        found = on_each(client, read)
    assert len(found) == 4
    for _, arrays in found.values():
        for name, array in expected.items():
            np.testing.assert_array_equal(arrays[name], array, err_msg=name)


def test_a_module_is_bound_to_what_is_published(client):
    """Batch normalisation's statistics travel; the module on the worker computes what ours does."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    module(torch.randn(16, 3))
    other = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    inputs = torch.randn(5, 3)
    with Publisher(client, task="net") as publisher:
        publisher.publish(module).result(20.0)
        outputs = on_each(client, infer, other, inputs, "net")
    module.eval()
    for output in outputs.values():
        torch.testing.assert_close(output, module(inputs), rtol=0.0, atol=0.0)


def test_the_newest_version_wins_and_plans_change_between_versions(client, slow_card):
    """Of versions that wait, only the last one is sent; every publication ends, also those that were never sent."""
    slow_card(4e6)
    with Publisher(client, plan="star", link=Link.of(4e6)) as publisher:
        publications = []
        for version in range(4):
            publications.append(publisher.publish({"w": np.full(100_000, version, np.float32)}))
            publisher.plan = "chain:c=2"
        reports = [publication.result(30.0) for publication in publications]
        assert [report.superseded for report in reports] == [False, True, True, False]
        assert [report.plan for report in reports] == ["star", "", "", "chain:c=2"]
        assert reports[0].n_superseded == 2
        found = on_each(client, read)
        assert {(version, arrays["w"][0]) for version, arrays in found.values()} == {(4, 3.0)}
        # L = .1 s: one card passes four models after one another; as a chain of halves, one and a half and three hops.
        assert reports[0].publish_s > 4 * 0.1
        assert reports[3].egress_bytes["learner"] == reports[3].n_bytes


def count_received():
    """Count the bytes of parameters that come to this worker, from here on."""
    from distributed import get_worker

    from drlnb.runtime.distribution.relay import _RELAYS

    worker = get_worker()
    relay, taken = _RELAYS[worker], worker.handlers["drlnb_chunk"]
    relay.n_received = 0

    async def counting(*, payload=b"", **about):
        relay.n_received += memoryview(payload).nbytes
        return await taken(payload=payload, **about)

    worker.handlers["drlnb_chunk"] = counting


def n_received():
    """Return how many that were."""
    from distributed import get_worker

    from drlnb.runtime.distribution.relay import _RELAYS

    return _RELAYS[get_worker()].n_received


def test_a_frozen_part_travels_once(make_foreign):
    """Of 24 MB beside 1 MB that is trained the megabyte is sent: to hosts that lack the rest all is, in every byte."""
    backbone, head = np.random.default_rng(0).random(3_000_000), np.zeros(125_000)
    foreign = make_foreign()
    foreign.add_workers(3)
    with Client(scheduler_file=str(foreign.file)) as client:
        client.wait_for_workers(3, 60)
        with Publisher(client, plan="relay:m=3") as publisher:

            def publish(value, n_hosts=3):
                head[:] = value
                report = publisher.publish({"backbone": backbone, "head": head}).result(30.0)
                arrays = {"backbone": backbone, "head": head}
                expected = {name: hashlib.sha256(array).hexdigest() for name, array in arrays.items()}
                assert list(on_each(client, digests).values()) == [(report.version, expected)] * n_hosts
                return report

            first = publish(1.0)
            assert (first.sent_bytes, first.kept_bytes) == (first.n_bytes, 0)
            on_each(client, count_received)
            report = publish(2.0)
            assert 1_000_000 <= report.sent_bytes <= 1_000_000 + 4 * (64 << 10)
            assert report.sent_bytes + report.kept_bytes == report.n_bytes == first.n_bytes
            assert set(on_each(client, n_received).values()) == {report.sent_bytes}
            assert sum(report.egress_bytes.values()) == 3 * report.sent_bytes
            megabytes = f"the learner sent {report.sent_bytes / 1e6:.3g} MB, {report.sent_bytes / 1e6:.3g} of 25 MB"
            assert megabytes + " to each host, which kept the rest" in str(report)
            unchanged = publish(2.0)
            assert (unchanged.version, unchanged.sent_bytes) == (3, 64 << 10)
            # A worker that was started anew holds nothing, and gets all; the others keep what they hold afterwards.
            address = next(iter(client.nthreads()))
            (pid,) = client.run(os.getpid, workers=[address]).values()
            os.kill(pid, signal.SIGKILL)
            publication = publisher._host.machine.state.publication
            head[:] = 3.0
            publisher.publish({"backbone": backbone, "head": head}).result(30.0)
            wait_until(lambda: sorted(publication.hosts.values()) == [4] * 3, "the new worker holds the version")
            assert publish(4.0).kept_bytes > 23_000_000
            backbone[1_500_000] += 1.0
            late = publish(5.0)
            assert 1_000_000 <= late.sent_bytes <= 1_000_000 + 6 * (64 << 10)
            backbone[:] = np.random.default_rng(1).random(3_000_000)
            assert publish(6.0).kept_bytes == 0


def test_without_confirmation_the_pause_of_readers_is_reported_with_the_next_version(client):
    """A reader that has gone on to a version says for how long it did not act meanwhile."""
    with Publisher(client, plan="star", task="paused") as publisher:
        assert publisher.publish({"w": np.ones(9)}).result(20.0).pause_s == 0.0
        views = [client.submit(hold_view, "paused", pure=False, workers=[at]) for at in list(client.nthreads())[:1]]
        wait(views)
        report = publisher.publish({"w": np.zeros(9)}).result(20.0)
        assert 0.0 < report.pause_s < 1.0
        assert report.n_actors == 0
        assert "actors paused for" in str(report)
        on_each(client, let_go)


def hold_view(task):
    """Attach a reader that stays, and have it go on to the newest version."""
    hold_view.kept = drlnb.distribution.HostView.attach(task=task)
    return hold_view.kept.refresh()


def let_go():
    """Close a reader that stayed."""
    kept = getattr(hold_view, "kept", None)
    if kept is not None:
        kept.close()


def test_workers_come_and_go(make_foreign):
    """Of a killed worker nobody waits to hear; the one that takes its place gets the version from another host."""
    foreign = make_foreign()
    foreign.add_workers(4)
    with Client(scheduler_file=str(foreign.file)) as client:
        client.wait_for_workers(4, 60)
        with Publisher(client, plan="relay:m=4") as publisher:
            publisher.publish({"w": np.zeros(1_000_000, np.float32)}).result(20.0)
            address = next(iter(client.nthreads()))
            lost = next(host for host, at in publisher._addresses.items() if at == address)
            (pid,) = client.run(os.getpid, workers=[address]).values()
            os.kill(pid, signal.SIGKILL)
            report = publisher.publish({"w": np.ones(1_000_000, np.float32)}).result(30.0)
            # The nanny may be quicker than the publisher: then it was a host again.
            assert (report.n_hosts, set(report.failed)) in [(3, {lost}), (4, {lost}), (4, set())]
            publication = publisher._host.machine.state.publication
            wait_until(lambda: sorted(publication.hosts.values()) == [2] * 4, "every worker holds the version")
            assert {arrays["w"][-1] for _, arrays in on_each(client, read).values()} == {1.0}


def test_who_has_closed_has_had_the_name_none_the_less(client):
    """The former publisher is told, and a new one has it."""
    with Publisher(client, plan="star", task="two") as first:
        with Publisher(client, plan="star", task="two") as second:
            second.publish({"w": np.ones(1_000)}).result(20.0)
        with pytest.raises(PeerError, match="has published 'two' since"):
            first.publish({"w": np.zeros(1_000)}).result(20.0)
        with Publisher(client, plan="star", task="two") as third:
            assert third.publish({"w": np.zeros(1_000)}).result(20.0).n_hosts == 4


def cut_off_one(dask_scheduler):
    """Have the scheduler find the connection to one worker closed whenever it opens one."""
    from distributed.comm import CommClosedError

    connect, lost = dask_scheduler.rpc.connect, next(iter(dask_scheduler.workers))

    async def connected(address, *args, **named):
        if address == lost:
            raise CommClosedError("Stream is closed")
        return await connect(address, *args, **named)

    dask_scheduler.rpc.connect = connected


def not_cut_off(dask_scheduler):
    del dask_scheduler.rpc.connect


def has(name, dask_worker):
    return name in dask_worker.plugins


@pytest.mark.parametrize("since", ["end", pytest.param("start", marks=pytest.mark.slow)])
def test_a_worker_that_is_cut_off_fails_neither_the_start_nor_the_end(client, since):
    """Dask puts plugins on and takes them off with an error for all if one worker is lost; the others have heard."""
    try:
        if since == "start":
            client.run_on_scheduler(cut_off_one)
        with Publisher(client, plan="star", task="cut") as publisher:
            assert publisher.publish({"w": np.zeros(1_000)}).result(20.0).n_hosts == {"start": 3, "end": 4}[since]
            if since == "end":
                client.run_on_scheduler(cut_off_one)
    finally:
        client.run_on_scheduler(not_cut_off)
    assert sum(client.run(has, publisher._plugin).values()) == {"start": 0, "end": 1}[since]


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["star", "tree:k=2", "binomial", "chain:c=8", "relay:m=5", "multitree:m=2,c=4"])
def test_nobody_waits_for_a_worker_that_the_scheduler_has_removed(make_foreign, plan):
    """Killed before a version or during one, without a nanny: Dask would try to connect for ten seconds and more."""
    foreign = make_foreign()
    foreign.options.append("--no-nanny")
    for _ in range(5):
        foreign.add_workers()
    with Client(scheduler_file=str(foreign.file)) as client:
        client.wait_for_workers(5, 60)
        with Publisher(client, plan=plan) as publisher:
            publisher.publish({"w": np.zeros(5_000_000, np.float32)}).result(20.0)
            pids = client.run(os.getpid)
            for n_left, is_first in ((4, True), (3, False)):
                pid = pids[publisher._addresses[publisher.hosts[n_left // 2]]]
                publication = None if is_first else publisher.publish({"w": np.ones(5_000_000, np.float32)})
                os.kill(pid, signal.SIGKILL)
                publication = publication or publisher.publish({"w": np.ones(5_000_000, np.float32)})
                assert publication.result(5.0).n_hosts == n_left
            wait_until(lambda: len(publisher.hosts) == 3, "the third one is forgotten, too")


def test_relays_beyond_the_hosts_are_not_reported(client):
    """What ran has four of them, whoever asked for nine; a number that was left open is told."""
    with Publisher(client, plan="relay:m=9", link=Link.of(1e6, overhead_s=0.0)) as publisher:
        report = publisher.publish({"w": np.zeros(1_000)}).result(20.0)
        assert (report.planner, report.plan) == ("relay:m=9", "relay:m=4")
        assert f"version 1 by relay:m=4 to {report.n_hosts} hosts" in str(report)
        publisher.plan = "tree"
        assert publisher.publish({"w": np.zeros(1_000)}).result(20.0).plan == "tree:k=2"


def test_who_publishes_later_takes_the_name_over(client):
    """The former publisher's versions are refused everywhere, with a line that says who has it; bytes never mix."""
    with Publisher(client, plan="star", task="two") as first, Publisher(client, plan="star", task="two") as second:
        assert first.publish({"w": np.zeros(1_000)}).result(20.0).n_hosts == 4
        assert second.publish({"w": np.ones(1_000)}).result(20.0).n_hosts == 4
        who = (
            re.escape(f"process {os.getpid()} on ") + r"\S+, opened \S+ \S+ \S+, has published 'two' since: open a new"
        )
        with pytest.raises(PeerError, match=who):
            first.publish({"w": np.full(1_000, 2.0)}).result(20.0)
        with pytest.raises(PeerError, match=who):
            first.publish({"w": np.full(1_000, 3.0)})
        assert {arrays["w"][0] for _, arrays in on_each(client, read, "two").values()} == {1.0}


ACTOR = """
import sys
from drlnb.distribution import HostView
with HostView.attach(sys.argv[1]) as view:
    for _ in sys.stdin:
        view.refresh()
        print(view.version, flush=True)
"""


class Actor:
    """A process of its own that looks for a newer version when it is told to."""

    def __init__(self, path):
        line = [sys.executable, "-c", ACTOR, path]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def refresh(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.kill()
        self.process.communicate()


def on_hosts(publication, kind):
    """Return the hosts that a kind of record of a publication names."""
    return {record.host for record in list(publication.trace) if isinstance(record, kind)}


@pytest.fixture
def make_actor():
    """Start actors by the path of their store; they are gone after the test."""
    with contextlib.ExitStack() as stack:

        def make(path):
            actor = Actor(path)
            stack.callback(actor.end)
            return actor

        yield make


def test_a_version_waits_for_the_actors_of_every_host(client, make_actor):
    """For the slow one too, not for one that is killed meanwhile; a host without actors keeps nobody waiting."""
    version = {"w": np.zeros(10_000)}
    with Publisher(client, confirm="actors") as publisher:
        report = publisher.publish(version).result(20.0)
        assert (report.n_actors, report.late_actors, set(report.applied_s_of)) == (0, {}, set(publisher.hosts))
        first, second, *_ = on_each(client, drlnb.distribution.store_path).values()
        quick, slow, other = (make_actor(path) for path in (first, first, second))
        assert [actor.refresh() for actor in (quick, slow, other)] == [1, 1, 1]
        publication = publisher.publish(version)
        installed = functools.partial(on_hosts, publication, ActorsInstalled)
        try:
            wait_until(lambda: len(on_hosts(publication, HostCompleted)) == 4, "it is on every host")
            wait_until(lambda: len(installed()) == 2, "two have no actors")
            assert [quick.refresh(), other.refresh()] == [2, 2]
            wait_until(lambda: len(installed()) == 3, "another one's have it")
        except AssertionError as error:
            raise AssertionError(f"{error}: {publication.trace}") from None
        waiting = publisher.publish(version)
        assert not publication.done()
        assert slow.refresh() == 2
        report = publication.result(20.0)
        assert (report.n_hosts, report.n_actors, report.late_actors, len(report.applied_s_of)) == (4, 3, {}, 4)
        assert 0.0 < report.pause_s < report.publish_s
        assert f"3 actors paused for {1e3 * report.pause_s:.3g} ms at most" in str(report)
        assert max(report.publish_s_of.values()) < max(report.applied_s_of.values()) <= report.publish_s
        wait_until(lambda: sum(isinstance(r, HostCompleted) for r in waiting.trace) == 4, "the next one is there")
        assert [slow.refresh(), other.refresh()] == [3, 3]
        quick.end()
        report = waiting.result(20.0)
        assert (report.n_actors, report.late_actors) == (2, {})


def test_actors_that_do_not_apply_a_version_are_listed(client, make_actor):
    """When the version's own deadline has passed once more; their host stays a host, and the next version goes out."""
    version = {"w": np.zeros(10_000)}
    with Publisher(client, task="late", confirm="actors", deadline_s=1.5) as publisher:
        publisher.publish(version).result(20.0)
        paths = on_each(client, drlnb.distribution.store_path, "late")
        actor = make_actor(next(iter(paths.values())))
        assert actor.refresh() == 1
        report = publisher.publish(version).result(20.0)
        ((host, n_late),) = report.late_actors.items()
        assert (n_late, report.n_actors, report.n_hosts, report.failed) == (1, 1, 4, {})
        assert set(report.applied_s_of) == set(publisher.hosts) - {host}
        assert report.publish_s > 1.5
        actor.end()
        assert publisher.publish(version).result(20.0).late_actors == {}


def test_closing_gives_everything_back(client, slow_card):
    """Stores and plugins are gone, whoever waits is told, and nothing can be published any more."""
    before = client.run(lambda dask_worker: sorted(dask_worker.plugins))
    slow_card(1e4)
    publisher = Publisher(client, plan="star", link=Link.of(1e4))
    publication = publisher.publish({"w": np.zeros(1_000_000)})
    publisher.close()
    publisher.close()
    with pytest.raises(PeerError, match="was closed before"):
        publication.result(1.0)
    with pytest.raises(RuntimeError, match="closed"):
        publisher.publish({"w": np.zeros(1)})
    assert client.run(lambda dask_worker: sorted(dask_worker.plugins)) == before
    future = client.submit(read, pure=False)
    with pytest.raises(ConfigError, match="nothing has been published to this worker as 'parameters'"):
        future.result()


def test_the_report_tells_the_hosts_in_the_order_of_their_records(client):
    """`await` works in a loop of one's own; the trace has one completion for each host."""
    import asyncio

    async def go(publisher):
        return await publisher.publish({"w": np.zeros(10)})

    with Publisher(client) as publisher:
        report = asyncio.run(go(publisher))
    assert sum(isinstance(record, HostCompleted) for record in report.trace) == report.n_hosts == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"plan": "relais"}, "must be one of auto, star"),
        ({"plan": "relay:m=-1"}, "m must be >= 1"),
        ({"plan": 5}, "distribution planner must be a name, or an object or a class with a name and plan(view), got 5"),
        ({"client": "tcp://127.0.0.1:1"}, "client must be a distributed.Client, got 'tcp://127.0.0.1:1'"),
        ({"confirm": "all"}, "confirm must be 'hosts' or 'actors', got 'all'"),
        ({"confirm": None}, "confirm must be 'hosts' or 'actors', got None"),
        ({"link": 5}, "link must be a Link, got 5"),
        ({"deadline_s": "1"}, "deadline_s must be > 0, got '1'"),
        ({"task": 3}, "task must be a name without '/', got 3"),
        ({"task": "a/b"}, "task must be a name without '/', got 'a/b'"),
        ({"deadline_s": 0.0}, "deadline_s must be > 0, got 0.0"),
    ],
)
def test_wrong_options_are_refused_in_a_line(client, options, words):
    """Nothing of drlnb's is put onto the workers then."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        Publisher(**{"client": client, **options})


def test_an_own_deadline_of_result_leaves_the_version_on_its_way(client, slow_card):
    """What was not in time arrives none the less."""
    slow_card(4e6)
    with Publisher(client, plan="star", link=Link.of(4e6)) as publisher:
        publication = publisher.publish({"w": np.zeros(100_000, np.float32)})
        with pytest.raises(TimeoutError, match="version 1 is still on its way"):
            publication.result(0.0)
        assert publication.result(20.0).n_hosts == 4


def test_modules_without_tensors_are_refused(client):
    """The error comes from publish(), and the next version goes out as if nothing had been."""
    with Publisher(client) as publisher:
        with pytest.raises(ValueError, match="ReLU has no tensors"):
            publisher.publish(torch.nn.ReLU())
        assert publisher.publish({"w": np.zeros(3)}).result(20.0).version == 1


def test_the_pages_example_runs(tmp_path):
    """The example of the page, outside of RL, as it stands there: a script with a cluster of its own."""
    if not PAGE.is_file():
        pytest.skip("no documentation beside these tests")
    text = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[1]
    (tmp_path / "example.py").write_text(text, encoding="utf-8")
    line = [sys.executable, "example.py"]
    ran = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert re.fullmatch(r"version 3 on 2 hosts by \w+, [\d.]+ ms, accuracy [\d.]+\n", ran.stdout), ran.stderr
    assert ran.returncode == 0


def test_the_network_is_measured_before_the_first_version(client):
    """Finite rates above nothing; what is given is not measured, and a host that does not answer tells nothing."""
    with Publisher(client) as publisher:
        report = publisher.publish({"w": np.zeros(10)}).result(20.0)
    assert report.link_origin == "measured"
    assert report.link.one_machine
    figures = asdict(report.link)
    assert all(0.0 < figures[name] < 1e15 for name in figures if name.endswith("bytes_per_s"))
    assert 0.0 < report.link.overhead_s < 0.1
    assert 0.0 <= report.link.latency_s < 0.5
    given = Link.of(1e6)
    with Publisher(client, link=given) as publisher:
        assert (publisher.link, publisher.link_origin) == (given, "given")


def test_a_host_that_stood_still_comes_back(make_foreign):
    """With the next version, also with one that waited while it was dropped; who stands still tells nothing."""
    foreign = make_foreign()
    foreign.add_workers(1)
    with Client(scheduler_file=str(foreign.file)) as client:
        client.wait_for_workers(1, 60)
        (pid,) = client.run(os.getpid).values()
        with Publisher(client, plan="star", deadline_s=1.0) as publisher:
            (host,) = publisher.hosts
            os.kill(pid, signal.SIGSTOP)
            try:
                publisher.plan = "auto"
                for _ in range(2):  # in the second one it is not back yet
                    report = publisher.publish({"w": np.zeros(10)}).result(30.0)
                    assert (report.n_hosts, set(report.failed), report.link_origin[:7]) == (0, {host}, "assumed")
                assert str(report) == f"version 2 is on no host; {host} dropped: {report.failed[host]}"
            finally:
                os.kill(pid, signal.SIGCONT)
            report = publisher.publish({"w": np.ones(10)}).result(20.0)
            assert (report.n_hosts, report.failed, publisher.hosts) == (1, {}, (host,))
            os.kill(pid, signal.SIGSTOP)
            try:
                dropping, waiting = (publisher.publish({"w": np.full(10, value)}) for value in (2.0, 3.0))
                assert dropping.result(30.0).n_hosts == 0
            finally:
                os.kill(pid, signal.SIGCONT)
            assert waiting.result(20.0).n_hosts == 1
            assert [arrays["w"][0] for _, arrays in on_each(client, read).values()] == [3.0]


class Twice:
    """Cuts a version in two, each half sent to every second host."""

    name = "twice"

    def plan(self, view):
        n, half = len(view.hosts), view.model_bytes // 2
        if view.version == 3:
            raise ZeroDivisionError("no third version")
        sends = [Send(*part, i) for i in range(n) for part in ((0, half), (half, view.model_bytes))]
        routes = tuple([((LEARNER, i),) for i in range(n)])
        return Plan(n_hosts=n, model_bytes=view.model_bytes, routes=routes, sends=tuple(sends))


def test_a_planner_of_ones_own_plans_versions(client):
    """An object or a class; a version that it cannot plan fails in a line, and the next one goes out by another."""
    with Publisher(client, plan=Twice()) as publisher:
        report = publisher.publish({"w": np.arange(1000)}).result(20.0)
        assert (report.plan, report.n_hosts, report.egress_bytes["learner"]) == ("own:twice", 4, 4 * report.n_bytes)
        assert report.predicted_s == 0.0
        publisher.plan = Twice
        assert publisher.plan == "own:twice"
        assert publisher.publish({"w": np.arange(1000)}).result(20.0).plan == "own:twice"
        failing = publisher.publish({"w": np.arange(1000)})
        with pytest.raises(PlannerFailed, match="own:twice raised ZeroDivisionError: no third version"):
            failing.result(20.0)
        publisher.plan = "relay:m=2"
        report = publisher.publish({"w": np.arange(1000)}).result(20.0)
        assert (report.version, report.plan, report.n_hosts) == (4, "relay:m=2", 4)
        assert {version for version, _ in on_each(client, read).values()} == {4}
        with pytest.raises(ConfigError, match="must be one of auto"):
            publisher.plan = "relais"


def test_a_publisher_logs_nothing(client, caplog):
    """What Dask logs of connections that are closed is no word to a user."""
    with caplog.at_level("INFO", logger="distributed.core"):
        with Publisher(client, task="quiet") as publisher:
            publisher.publish({"w": np.arange(10)}).result(20.0)
        assert [record.message for record in caplog.records] == []
        assert logging.getLogger("distributed.core").level == logging.INFO


def publish_in_a_task():
    """Publish from a Dask task, as clients do that reach no worker; return where it arrived."""
    with worker_client() as here, Publisher(here, task="inner") as publisher:
        report = publisher.publish({"w": np.arange(1000)}).result(30.0)
        here.rpc.collect()
        return report.n_hosts, report.failed


def test_a_task_publishes_for_a_client_that_reaches_the_scheduler_alone(client):
    """To all workers, its own among them."""
    assert client.submit(publish_in_a_task, pure=False).result(60.0) == (4, {})
