"""Fleets with short times of leasing, for tests that wait for an expiry."""

import pytest

import drlnb
from drlnb.records.columns import leasing

#: Times of leasing for tests that wait for an expiry.
QUICK = {"ttl_s": 1.5, "holder_ttl_s": 1.2, "renew_s": 0.3, "kill_grace_s": 1.0}


@pytest.fixture
def quick(tmp_path):
    """Start a cluster with short times of leasing; open fleets with so many slots on it."""
    from distributed import Client

    from drlnb.runtime.client.link import Link
    from drlnb.runtime.client.local_cluster import start_local

    handle = start_local(n_workers=1, root=tmp_path / "cluster")
    client = Client(handle.address)
    fleets = []

    def fleet(n_slots=1, **settings):
        Link(client).open_pool(n_slots, own_workers=1, settings={**QUICK, **settings})
        fleets.append(drlnb.Fleet(client, slots=n_slots))
        vars(fleets[-1])["pid"] = handle.pid
        return fleets[-1]

    yield fleet
    for one in fleets:
        one.close()
    client.close()
    handle.stop()


def ends(fleet):
    """Return how the leases of the pool ended so far: (token, reason or None while it is held)."""
    journal = fleet.journal()
    found = {record.fence.token: None for record in journal.of(leasing.LeaseGranted)}
    for record in journal.of(leasing.LeaseReleased, leasing.LeaseExpired):
        found[record.fence.token] = getattr(record, "reason", "expired")
    return list(found.items())
