"""What `python -m benchmarks distribution` makes of versions that took known times and bytes."""

import json
from functools import cache

import pytest

from benchmarks.benches import BENCHES
from benchmarks.distribution import hops, network
from benchmarks.distribution.network import Measured, network_rows, plans
from benchmarks.distribution.rig import NoRig
from benchmarks.efforts import Distribution
from benchmarks.frame import bench as frame
from drlnb.records.errors import ConfigError

#: 16 hosts, 20 MB at 100 Mbit/s: L = 1.6 s, with headers 1.6736.
N, SIZE, L = 16, 20_000_000, 1.6
TIMES = {
    "star": 16.74, "tree:k=4": 7.32, "binomial": 5.23, "relay:m=4": 5.0, "relay:m=8": 3.1, "relay:m=16": 2.1,
    "chain:c=64": 1.3, "chain:c=128": 1.2, "multitree:m=2,c=64": 1.4, "multitree:m=4,c=16": 1.6,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def simulated_once():
    """Simulate each plan once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "simulate_publish", cache(network.simulate_publish))
        yield


def turn(plan, times, *, learner=1.0, busiest=1.0, again=0.0, received=1.0, wrong=()):
    """Return what one version came to: relays send their share, all others nothing of note."""
    kind, _, m = plan.partition(":m=")
    share = (N - 1) / int(m) if kind == "relay" else 0.0
    hosts = [[round(share * (busiest + again) * SIZE), round(received * SIZE)] for _ in range(N)]
    reply = {"publish_s": times * L, "predicted_s": 0.0, "failed": [], "wrong": list(wrong)}
    reply["moved"] = [[round(learner * SIZE), 0], *hosts]
    return reply | {"again": [0, *[round(share * again * SIZE)] * N]}


def measured(shaped=True, killed=None, **how):
    """Return two turns of every plan, the second a tenth slower."""
    turns = {plan: [turn(plan, times, **how), turn(plan, 1.1 * times, **how)] for plan, times in TIMES.items()}
    killed = killed or {"undisturbed": [], "killed": []}
    return Measured(n=N, rate_mbit=100.0, n_bytes=SIZE, turns=turns, killed=killed, shaped=shaped)


def rows_of(measured):
    return {row.id: row for row in network_rows(measured)}


def test_the_plans_of_the_seeds_comparison_are_among_those_measured():
    """At 16 hosts relay and tree at their 4, as in the rows; a tree of fewer than 4 trees has no chunks to win."""
    assert plans(16) == list(TIMES)
    assert plans(2) == ["star", "tree:k=2", "binomial", "relay:m=2", "chain:c=64", "chain:c=128"]


def test_plans_are_compared_pair_by_pair():
    """By hand: 16.74 / 2.1, 7.32 / 5, 5.23 / 2.1, 2.1 / 1.2; the bound is 1.046 L, and 1.26 of it is within 1.5."""
    rows = rows_of(measured())
    ratios = {
        "relay-star": 16.74 / 2.1,
        "relay-tree": 7.32 / 5,
        "relay-binomial": 5.23 / 2.1,
        "chunks-relay": 2.1 / 1.2,
    }
    for name, ratio in ratios.items():
        row = rows[f"{name}-16"]
        assert row.ratio == pytest.approx(ratio)
        assert (row.holds, row.binding, row.origin) == (True, True, "measured")
        assert row.pairs == pytest.approx([ratio, ratio])
    assert rows["bound-16"].title.startswith("chain:c=128")
    assert rows["bound-16"].ratio == pytest.approx(1.05 * 1.2 / 1.046)
    assert "relay-scatter-16" not in rows


def test_times_stand_beside_what_was_computed_and_simulated():
    """A star takes 16 x 1.046 L and .3 ms by both; the median of the two turns is 5 % above 16.74 L."""
    rows = rows_of(measured())
    star = rows["time-16-star"]
    assert star.baseline == pytest.approx(16 * 1.046 * L + 300e-6)
    assert star.title.endswith("17.58 L, simulated 16.74 L")
    # binomial: 4 doublings take 5 x 1.046 L = 5.23 L; relay m = 16: 1.9375 x 1.046 = 2.027 L.
    assert rows["fidelity-16"].title.endswith("(relay:m=16)")
    assert rows["fidelity-16"].value == pytest.approx(1.05 * 2.1 / 2.028 - 1, abs=1e-3)
    assert rows["fidelity-16"].holds


@pytest.mark.parametrize(
    ("how", "row", "value"),
    [
        ({"learner": 1.06}, "egress-learner-16", 1.06),
        ({"busiest": 1.04}, "egress-host-16", 0.04),
        ({"busiest": 0.96}, "egress-host-16", 0.04),
        ({"received": 1.02}, "ingress-16", 0.02),
        ({"received": 0.98}, "ingress-16", 0.02),
    ],
)
def test_bytes_that_should_not_be_are_seen(how, row, value):
    """Each bar is kept by what the plan says, and missed by some per cent more or less."""
    assert rows_of(measured())[row].holds
    rows = rows_of(measured(**how))
    assert rows[row].value == pytest.approx(value, abs=1e-4)
    assert {name for name in ("egress-learner-16", "egress-host-16", "ingress-16") if not rows[name].holds} == {row}


def test_what_the_network_lost_is_told_apart():
    """TCP sends it again: the plan has not sent too much."""
    rows = rows_of(measured(again=0.05))
    assert rows["egress-host-16"].holds
    assert rows["sent-again-16"].value == pytest.approx(0.05, abs=1e-4)
    assert rows_of(measured())["sent-again-16"].value == 0.0


def test_a_killed_relay_must_be_mended_before_the_deadline():
    """Four predictions of 2.03 L are 13 s; a host that lives without the version is counted."""
    calm = [turn("relay:m=16", 2.0)]
    rows = rows_of(measured(killed={"undisturbed": calm, "killed": [turn("relay:m=16", 4.0)]}))
    assert (rows["killed-relay"].ratio, rows["killed-relay"].holds) == (2.0, True)
    assert rows["killed-relay"].bar.at_most == pytest.approx(4 * 1.9375 * 1.046 * L, rel=0.01)
    assert rows["killed-relay-wrong"].holds
    late = turn("relay:m=16", 9.0, wrong=["h3"])
    rows = rows_of(measured(killed={"undisturbed": calm, "killed": [late]}))
    assert (rows["killed-relay"].holds, rows["killed-relay-wrong"].holds) == (False, False)


def test_emulated_figures_are_labelled_and_held_against_no_bar_of_a_shaped_link():
    """There are no interfaces to count by, and no headers."""
    rows = rows_of(measured(shaped=False))
    assert {row.origin for row in rows.values()} == {"emulated"}
    assert all(row.bar is None for row in rows.values())
    assert not any(name.startswith(("egress", "ingress")) for name in rows)
    assert rows["bound-16"].baseline == L


class FakeRig:
    """Answers a learner's requests with known figures."""

    def __init__(self, wrong=()):
        self.asked, self.wrong = [], wrong

    def __call__(self, spec):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def ask(self, op, **message):
        self.asked.append((op, message))
        if op == "hop":
            return {"hop_s": 0.01 if message["kind"] == "memoryview" else 0.03}
        if op == "scatter":
            return {"publish_s": 5.0 * L}
        return turn(message["plan"], TIMES[message["plan"]], wrong=self.wrong) if op == "publish" else {}


@pytest.fixture
def small(monkeypatch):
    """As if 16 hosts were few."""
    monkeypatch.setattr(network, "open_rig", rig := FakeRig())
    return rig, Distribution(hosts=(16,), rate_mbit=(100.0,), repeats=2)


def test_every_version_is_read_back_and_plans_take_turns(small):
    """All connections first, then every plan and Dask's way twice in turn, then relays are killed."""
    rig, effort = small
    rows = {row.id: row for row in network.network(effort)}
    assert rows["relay-scatter-16"].ratio == pytest.approx(5.0 / 2.1)
    assert rig.asked[0] == ("open", {"link": None})
    ways = [message.get("plan", op) for op, message in rig.asked[2:-4]]
    assert ways == [*TIMES, "scatter"] * 2
    assert all(message["check"] for op, message in rig.asked[2:-4] if op == "publish")
    assert [message.get("kill_after_s", 0) for _, message in rig.asked[-4:]] == [0, 0.64, 0, 0.64]
    rig.wrong = ["tcp://h3"]
    with pytest.raises(RuntimeError, match=r"star: tcp://h3, tcp://h3 does not hold the version"):
        list(network.network(effort))


def test_emulated_cards_have_the_rates_that_are_asked_for(small):
    """100 Mbit/s are 12.5e6 bytes/s, both ways; nothing is compared with Dask's way."""
    rig, _ = small
    rig_rows = list(network.network(Distribution(rig="emulated", hosts=(16,), rate_mbit=(100.0,), repeats=1)))
    op, message = rig.asked[0]
    rates = {value for name, value in message["link"].items() if name.endswith("gress_bytes_per_s")}
    assert (op, rates) == ("open", {12.5e6})
    assert {row.origin for row in rig_rows} == {"emulated"}
    assert "scatter" not in [op for op, _ in rig.asked]


def test_without_namespaces_the_rows_say_why(monkeypatch):
    """They are left out, which does not fail the bench."""

    def refuse(spec):
        raise NoRig("Operation not permitted")

    monkeypatch.setattr(network, "open_rig", refuse)
    rows = list(network.network(Distribution()))
    assert [(row.id, row.not_measured, row.skipped) for row in rows] == [
        (f"network-{n}", "Operation not permitted", True) for n in (8, 16)
    ]


def test_a_hop_is_compared_in_two_forms(monkeypatch):
    """20 MB in 10 ms against 30 ms: 2 GB/s, three times as fast."""
    monkeypatch.setattr(hops, "open_rig", FakeRig())
    (row,) = hops.payload(Distribution(repeats=1))
    assert (row.value, row.holds) == (2.0, True)
    assert row.ratio == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hosts", "8,x"], "argument --hosts: invalid numbers value: '8,x'"),
        (["--hosts", "8,1", "--rate-mbit", "9,9"], "--hosts must be in 2..200, got 1"),
        (["--hosts", "8"], "--rate-mbit must have 1 numbers as --hosts, got 2"),
        (["--rate-mbit", "0,1"], "--rate-mbit must be >= 1, got 0"),
        (["--model-mb", "nan"], r"--model-mb must be in 0\.1\.\.1000, got nan"),
        (["--rig", "real"], "invalid choice: 'real'"),
    ],
)
def test_wrong_words_are_refused(words, message, monkeypatch):
    """With the option, the limit and the value, before anything is measured."""
    monkeypatch.setattr(frame, "measure", lambda *_: pytest.fail("a row was measured"))
    with pytest.raises(ConfigError, match=message):
        BENCHES["distribution"].main(words)


def test_numbers_by_comma_reach_the_rows(monkeypatch, tmp_path):
    """One rig per pair of hosts and rate."""
    seen = []
    monkeypatch.setattr(frame, "measure", lambda name, group, effort: seen.append(effort) or [])
    words = ["--rows", "payload", "--hosts", "4,6", "--rate-mbit", "50,20.5", "--json", str(tmp_path / "rows.json")]
    assert BENCHES["distribution"].main(words) == 0
    assert (seen[0].hosts, seen[0].rate_mbit, seen[0].n_bytes) == ((4, 6), (50.0, 20.5), 20_000_000)
    assert json.loads((tmp_path / "rows.json").read_text())["bench"] == "distribution"
