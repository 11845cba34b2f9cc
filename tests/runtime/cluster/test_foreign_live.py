"""Clusters of somebody else: with certificates, with workers that come later, and restarted by their owner."""

import importlib.util
import shutil
import subprocess

import pytest
from distributed import Client, Security

import drlnb
from drlnb.records.columns.leasing import LeaseGranted
from drlnb.records.journal import Journal
from drlnb.records.round import TaskOpened
from tests.runtime.laws import check_laws
from tests.runtime.live import wait_until

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
        run = fleet.train(_task(12_288), out=tmp_path / "r")
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
        run = fleet.train(_task(12_288), out=tmp_path / "r")
        wait_until(lambda: run.tasks["a"].n_timesteps > 1000, "steps")
        cluster.end(first)
        cluster.add_workers()
        assert run.wait(90)["a"].state == "done"
    check_laws(tmp_path / "r")
    lent = [record.slots for record in Journal.read(tmp_path / "r").of(LeaseGranted)]
    assert lent[0] == (before,)
    assert lent[-1] != (before,)
