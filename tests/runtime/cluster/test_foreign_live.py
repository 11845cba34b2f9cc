"""Clusters of somebody else: with certificates, with workers that come later, and restarted by their owner."""

import importlib.util
import shutil
import signal
import subprocess
import sys

import psutil
import pytest
from distributed import Client, Security

import drlnb
from drlnb.records.columns.leasing import LeaseGranted
from drlnb.records.journal import Journal
from drlnb.records.round import TaskOpened
from drlnb.runtime.client import link
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def certificate(tmp_path):
    """Return (certificate, key) files of a certificate that is its own authority, for this test alone."""
    security = _by_package(tmp_path) if importlib.util.find_spec("cryptography") else _by_command(tmp_path)
    if security is None:
        pytest.skip("neither the package cryptography nor the command openssl is here to make a certificate")
    return security


def _by_package(folder):
    made = Security.temporary()
    files = folder / "cert.pem", folder / "key.pem"
    for file, text in zip(files, (made.tls_client_cert, made.tls_client_key), strict=True):
        file.write_text(text, encoding="ascii")
    return files


def _by_command(folder):
    if shutil.which("openssl") is None:
        return None
    files = folder / "cert.pem", folder / "key.pem"
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=drlnb test"]
    subprocess.run([*line, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def _task(steps):
    return drlnb.Task("CartPole-v1", name="a", total_timesteps=steps)


def test_a_run_behind_tls_outlives_a_restart_of_its_cluster(make_foreign, certificate, tmp_path):
    """Masters, executors and their messages need no more than the client's certificate; nor does the way back."""
    cert, key = map(str, certificate)
    cluster = make_foreign("--tls-ca-file", cert, "--tls-cert", cert, "--tls-key", key, "--protocol", "tls")
    cluster.add_workers()
    security = Security(require_encryption=True, tls_ca_file=cert, tls_client_cert=cert, tls_client_key=key)
    with (
        Client(scheduler_file=str(cluster.file), security=security, set_as_default=False) as client,
        drlnb.Fleet(client, slots=1) as fleet,
    ):
        assert fleet.address.startswith("tls://")
        run = fleet.train(_task(24_576), out=tmp_path / "r")
        wait_until(lambda: run.tasks["a"].n_timesteps > 1000, "steps")
        client.restart(wait_for_workers=False)
        assert run.wait(90)["a"].state == "done"
    check_laws(tmp_path / "r")
    assert sorted(record.attempt for record in Journal.read(tmp_path / "r").of(TaskOpened)) == [1, 2]


def test_a_later_worker_brings_a_slot_that_is_lent(make_foreign, tmp_path):
    """The worker with the pool's slot leaves for good; one that joins brings another, and the task goes on there."""
    cluster = make_foreign()
    first = cluster.add_workers()
    with drlnb.Fleet(str(cluster.file), slots=1) as fleet:
        (before,) = [slot.slot for slot in fleet.pool.slots]
        run = fleet.train(_task(10**7), out=tmp_path / "r")
        wait_until(lambda: run.tasks["a"].n_timesteps > 1000, "steps")
        cluster.end(first)
        cluster.add_workers()
        wait_until(lambda: run.tasks["a"].n_restarts, "another attempt")
        at = run.tasks["a"].n_timesteps
        wait_until(lambda: run.tasks["a"].n_timesteps > at, "a round of it")
        run.stop()
        assert run.wait(90)["a"].state == "stopped"
    check_laws(tmp_path / "r")
    lent = [record.slots for record in Journal.read(tmp_path / "r").of(LeaseGranted)]
    assert lent[0] == (before,)
    assert lent[-1] != (before,)


def test_bare_workers_are_named_and_left_alone_and_drlnb_leaves_with_its_last_fleet(make_foreign, tmp_path):
    """One that joins later lives on, beside a fleet and after it; another fleet finds a cluster as it was."""
    cluster = make_foreign()
    cluster.add_workers(bare=True)
    good = cluster.add_workers()
    with Client(scheduler_file=str(cluster.file), set_as_default=False) as client:
        client.wait_for_workers(2)
        fleet = drlnb.Fleet(client, slots=1)
        (bare,) = [text for text in fleet.notices if "has no drlnb; install it there with: pip install drlnb==" in text]
        cluster.add_workers(bare=True)
        wait_until(lambda: len(fleet.notices) == 3, "the later one is named, too")
        assert fleet.notices[1] == bare
        run = fleet.train(_task(2048), out=tmp_path / "r")
        assert run.wait(90)["a"].state == "done"
        assert titled("drlnb executor", good.pid)
        fleet.close()
        wait_until(
            lambda: not [*titled("drlnb executor", good.pid), *titled("drlnb zygote", good.pid)], "all has ended"
        )
        wait_until(lambda: not client.run_on_scheduler(_ours), "drlnb has left the scheduler")
        cluster.add_workers(bare=True)
        client.wait_for_workers(4)
        assert set(client.run(lambda dask_worker: any("drlnb" in name for name in dask_worker.plugins)).values()) == {
            False
        }
        with drlnb.Fleet(client, slots=1) as again:
            assert len([text for text in again.notices if "has no drlnb" in text]) == 3
            assert again.pool.link.probe_env("CartPole-v1")["action_space"]["n"] == 2
    check_laws(tmp_path / "r")


def _ours(dask_scheduler):
    return [name for name in (*dask_scheduler.plugins, *dask_scheduler.handlers) if "drlnb" in str(name)]


def test_a_worker_that_does_not_answer_is_named_and_others_are_used(make_foreign, monkeypatch):
    """A frozen one holds nothing up for long, neither when a fleet is opened nor when it is closed."""
    monkeypatch.setattr(link, "_LATE_S", 0.5)
    monkeypatch.setattr(link, "_PLUGIN_S", 3.0)
    cluster = make_foreign()
    cluster.add_workers(2)
    with Client(scheduler_file=str(cluster.file), set_as_default=False) as client:
        client.wait_for_workers(2)
        address, pid = next(iter(client.run(_pid).items()))
        frozen = psutil.Process(pid)
        frozen.send_signal(signal.SIGSTOP)
        try:
            with drlnb.Fleet(client, slots=1) as fleet:
                assert f"worker {address} does not answer: it is not used" in fleet.notices
                assert fleet.pool.n_nodes == 1
            wait_until(lambda: not client.run_on_scheduler(_ours), "drlnb has left the scheduler")
        finally:
            frozen.send_signal(signal.SIGCONT)


def _pid():
    import os

    return os.getpid()


_ADAPTIVE = """
from distributed import LocalCluster

here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
with LocalCluster(n_workers=0, threads_per_worker=1, **here) as cluster:
    cluster.adapt(minimum=0, maximum=1, interval="100ms", wait_count=1)
    print(cluster.scheduler_address, flush=True)
    input()
"""


def test_a_cluster_that_scales_from_no_worker_is_waited_for(tmp_path, capsys):
    """The wait is said; the worker that comes is kept while the fleet is open, and goes after it."""
    line = [sys.executable, "-c", _ADAPTIVE]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path) as process:
        with Client(process.stdout.readline().strip(), set_as_default=False) as client:
            with drlnb.Fleet(client, slots=1) as fleet:
                assert fleet.pool.n_nodes == 1
                assert fleet.pool.link.probe_env("CartPole-v1")["action_space"]["n"] == 2
            assert "no worker is there yet: waiting up to 600 s for the cluster to scale" in capsys.readouterr().err
            wait_until(lambda: not client.ncores(), "the cluster has scaled down again")
        process.communicate("\n", timeout=30.0)
