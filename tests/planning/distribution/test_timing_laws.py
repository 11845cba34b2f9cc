"""The closed forms and the constructions beside the plainest timing of a plan: cards, bytes and nothing else.

In this file a card passes one byte per tick, so that times are whole numbers; latency and overhead are 0.
"""

import heapq
import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import (
    DISTRIBUTION,
    LEARNER,
    PRESETS,
    STRATEGIES,
    Cost,
    DistributionView,
    Link,
    Plan,
    Send,
    best,
    binomial,
    bound_s,
    chain,
    forecast,
    multitree,
    relay,
    star,
    tree,
)

SIZE = 20_000_000
EQUAL = Link.of(float(SIZE), latency_s=0.0, overhead_s=0.0)
ROUNDING = 1e-9
#: Name -> hosts, bytes, m and c to its plan; written beside the table of the planner.
MAKE = {
    "star": lambda n, size, m, c: star(n, size),
    "tree": lambda n, size, m, c: tree(n, size, m),
    "deep": lambda n, size, m, c: tree(n, size, m, levels=99),
    "binomial": lambda n, size, m, c: binomial(n, size),
    "chain": lambda n, size, m, c: chain(n, size, c),
    "relay": lambda n, size, m, c: relay(n, size, m, c),
    "multitree": multitree,
}
#: A tree of more levels is the same strategy with another number.
STRATEGY, LEVELS = {"deep": "tree"}, {"tree": 2, "deep": 99}
SHARDED = ("chain", "relay", "multitree")
#: Ticks per byte of the learner's card, of a host's way out, and of its way in.
CARDS = [(1, 1, 1), (1, 3, 1), (3, 1, 1), (2, 3, 1), (1, 1, 3), (1, 2, 3), (1, 3, 3)]


def ticks(plan, learner=1, egress=1, ingress=1):
    """Return when the last host holds all bytes.

    Each host sends in the order of arrival and of the route.  A message holds its sender's card from its start, the
    receiver's from then or once that is free, and is there when it has passed both.
    """
    sends_until, receives_until, begun, numbers = Counter(), Counter(), [], itertools.count()

    def forward(host, ready, send):
        for sender, receiver in plan.routes[send.route]:
            if sender == host:
                start = max(ready, sends_until[host])
                sends_until[host] = start + (send.stop - send.start) * (learner if host == LEARNER else egress)
                heapq.heappush(begun, (start, next(numbers), receiver, send, sends_until[host]))

    last = 0
    for send in plan.sends:
        forward(LEARNER, 0, send)
    while begun:
        start, _, host, send, sent = heapq.heappop(begun)
        receives_until[host] = max(start, receives_until[host]) + (send.stop - send.start) * ingress
        there = max(sent, receives_until[host])
        last = max(last, there)
        forward(host, there, send)
    return last


def versions(name, n, m=1, c=1):
    """Return the ticks of a plan whose chunks are all equal, in units of one version through one card."""
    return ticks(MAKE[name](n, m * c, m, c)) / (m * c)


def closed(name, n, m=1, c=1):
    """Return what the closed form says, in the same units."""
    return expected(name, n, SIZE, EQUAL, m, c)


def expected(name, n, size, link, m, c):
    """Return what the closed form says in seconds."""
    return forecast(STRATEGY.get(name, name), n, size, link, m, LEVELS.get(name, c)).publish_s


def link_of(cards):
    """Return the link whose cards take so many ticks per byte, a tick being one sixtieth of a second."""
    learner, egress, ingress = (60.0 / each for each in cards)
    return Link(
        learner_bytes_per_s=learner, egress_bytes_per_s=egress, ingress_bytes_per_s=ingress, latency_s=0.0,
        overhead_s=0.0,
    )  # fmt: skip


def depth(route):
    """Return the hops from the learner to the furthest host of a route."""
    hops = {LEARNER: 0}
    for sender, receiver in route:
        hops[receiver] = hops[sender] + 1
    return max(hops.values())


def heap_levels(n, fan_out):
    """Return the least d for which 1 + f + ... + f^d hosts are at least n."""
    return next(d for d in itertools.count() if sum(fan_out**level for level in range(d + 1)) >= n)


# ------------------------------------------------------------------ A: the timing itself
#: Six bytes go 0 -> 1 -> 2, four go 1 -> (0, 2).
LINE_AND_FORK = Plan(
    n_hosts=3,
    model_bytes=10,
    routes=(((LEARNER, 0), (0, 1), (1, 2)), ((LEARNER, 1), (1, 0), (1, 2))),
    sends=(Send(0, 6, 0), Send(6, 10, 1)),
)


@pytest.mark.parametrize(
    ("plan", "cards", "last"),
    [
        (star(3, 2), (1, 1, 1), 6),
        (star(2, 3), (1, 1, 2), 3 + 6),  # the second message starts at 3 and takes its receiver 6
        (chain(2, 3), (1, 2, 1), 3 + 6),
        (chain(2, 4, 2), (1, 1, 1), 6),  # chunks of two: 0-2, 2-4 at host 0; 2-4, 4-6 at host 1
        (tree(5, 7, 2), (1, 1, 1), 3 * 7),  # host 0 has it at 7 and serves two, host 1 at 14 and serves the other
        (relay(3, 6, 3), (1, 1, 1), 6 + 4),
        # Both messages to host 1 start at 6, the learner's first: there at 10 and 16.  Host 1 sends four bytes to 0
        # (10-14) and to 2 (14-18), then the six that have waited since 16 (18-24).
        (LINE_AND_FORK, (1, 1, 1), 24),
    ],
    ids=["star", "slow in", "slow out", "chunks", "tree", "relay", "line and fork"],
)
def test_tiny_plans_take_what_they_take_by_hand(plan, cards, last):
    """The timing that all else in this file is held against gives the ticks counted on paper."""
    assert ticks(plan, *cards) == last


@pytest.mark.parametrize("n", range(1, 25))
def test_star_binomial_chain_and_relay_take_exactly_their_closed_form(n):
    """In equal chunks on equal cards there is no tolerance: n, ceil(log2(n + 1)), (n + c - 1) / c, 1 + (n - 1) / m."""
    assert versions("star", n) == closed("star", n) == n
    assert versions("binomial", n) == closed("binomial", n) == n.bit_length()
    for c in (1, 2, 5, 16):
        assert versions("chain", n, 1, c) == pytest.approx(closed("chain", n, 1, c), rel=ROUNDING)
        assert versions("chain", n, 1, c) == (n + c - 1) / c
    for m in range(1, n + 1):
        assert versions("relay", n, m) == pytest.approx(closed("relay", n, m), rel=ROUNDING)
        assert versions("relay", n, m) == pytest.approx(1 + (n - 1) / m, rel=ROUNDING)


@given(n=st.integers(1, 20), m=st.integers(1, 20), size=st.integers(1, 400), epoch=st.integers(0, 5))
def test_shards_that_differ_by_a_byte_stay_between_the_smaller_and_the_larger_ones(n, m, size, epoch):
    """A relay plan takes S + (n - 1) S / m, the shard rounded down or up, in every epoch."""
    sent = min(m, n, size)
    took = ticks(relay(n, size, m, epoch=epoch))
    assert size + (n - 1) * (size // sent) <= took <= size + (n - 1) * -(-size // sent)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12, 13, 16, 24])
def test_two_levels_are_the_closed_form_or_a_version_less(n):
    """The last intermediate host serves one host less than the first where k does not divide n."""
    for k in range(1, n + 1):
        assert versions("tree", n, k) == k - 1 + n // k
        assert closed("tree", n, k) - versions("tree", n, k) == (n % k > 0)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 12, 13, 14, 24, 39])
def test_a_last_level_that_is_full_takes_all_of_it(n):
    """A k-ary tree of d levels takes (d - 1) k versions at least and d k at most; exactly d k where it is full."""
    for k in range(1, n + 1):
        levels = heap_levels(n + 1, k)  # the learner is a member of this heap
        took = versions("deep", n, k)
        assert (levels - 1) * k <= took <= levels * k
        assert closed("deep", n, k) == (n if k == 1 else levels * k)
        if sum(k**level for level in range(1, levels + 1)) == n:
            assert took == levels * k


@pytest.mark.parametrize("c", [2, 3, 8])
def test_chunks_through_relays_take_no_more_than_their_closed_form(c):
    """They take the longer of two ways, which the closed form adds up: two thirds of it at least, all if m >= n - 1.

    With one relay less than hosts it may be a chunk more.
    """
    for n in (2, 3, 5, 8, 13):
        for m in range(1, n + 1):
            took, said = versions("relay", n, m, c), closed("relay", n, m, c)
            longer, more = max(1 / c + (n - 1) / m, 1 + (n - 1) / (m * c)), (m == n - 1) / (m * c)
            assert longer * (1 - ROUNDING) <= took <= (longer + more) * (1 + ROUNDING)
            assert 2 / 3 * said < took <= (said + more) * (1 + ROUNDING)
            assert m < n - 1 or longer == pytest.approx(said, rel=ROUNDING)


@pytest.mark.parametrize(("n", "m"), [(4, 2), (6, 2), (6, 3), (9, 3), (12, 4), (20, 5), (24, 8), (24, 24)])
def test_a_multitree_takes_less_than_its_closed_form_where_all_trees_are_alike(n, m):
    """Where m divides n the true time is 45 % to 100 % of it; more chunks bring it nearer to a version and to it."""
    took = [versions("multitree", n, m, c) for c in (1, 2, 4, 8)]
    for c, seconds in zip((1, 2, 4, 8), took, strict=True):
        assert 0.45 < seconds / closed("multitree", n, m, c) < 1.0
    assert took == sorted(took, reverse=True)
    assert 1.0 <= took[-1] < 1.4


@pytest.mark.parametrize("cards", CARDS, ids=str)
@pytest.mark.parametrize("n", [1, 4, 9, 14])
def test_cards_of_different_speed(cards, n):
    """No plan beats the bound; whole versions and chains take no more than their closed form, whichever is slowest.

    A star and a relay take exactly theirs where hosts receive at least as fast as everybody sends.
    """
    link = link_of(cards)
    for name, make in MAKE.items():
        for m, c in itertools.product(STRATEGIES[STRATEGY.get(name, name)].m(n), (1, 3) if name in SHARDED else (1,)):
            took = ticks(make(n, m * c, m, c), *cards) / 60
            said = expected(name, n, m * c, link, m, c)
            assert took >= bound_s(Cost.of(n, m * c, link)) * (1 - ROUNDING)
            if name in {"tree", "deep", "binomial", "chain"}:
                assert took <= said * (1 + ROUNDING)
            elif name != "multitree" and c == 1 and cards[2] == min(cards):
                assert took == pytest.approx(said, rel=ROUNDING)


# ------------------------------------------------------------------ B: laws of the closed forms
RATES = ("learner_bytes_per_s", "egress_bytes_per_s", "ingress_bytes_per_s")
rates, seconds_of_a_message = st.floats(1e6, 1e10), st.floats(0, 0.01)
links = st.builds(
    Link,
    learner_bytes_per_s=rates,
    egress_bytes_per_s=rates,
    ingress_bytes_per_s=rates,
    latency_s=seconds_of_a_message,
    overhead_s=seconds_of_a_message,
)
CASE = {
    "name": st.sampled_from(list(STRATEGIES)),
    "n": st.integers(1, 40),
    "size": st.integers(1, 10**9),
    "link": links,
    "m": st.integers(0, 40),
    "c": st.integers(0, 12),
}


@given(**CASE, factor=st.integers(2, 9))
def test_a_worse_link_or_a_larger_version_is_never_faster(name, n, size, link, m, c, factor):
    """Bytes, latency, overhead and each slower card: time stays or grows, at fixed numbers and at the best ones."""
    before = forecast(name, n, size, link, m, c).publish_s
    worse = [replace(link, **{rate: getattr(link, rate) / factor}) for rate in RATES]
    worse += [replace(link, latency_s=link.latency_s * factor), replace(link, overhead_s=link.overhead_s * factor)]
    after = [forecast(name, n, size, each, m, c).publish_s for each in worse]
    after.append(forecast(name, n, size * factor, link, m, c).publish_s)
    assert min(after) >= before * (1 - ROUNDING)
    assert max(after) <= factor * before * (1 + ROUNDING), "nothing counts more than once"


@given(**CASE, factor=st.integers(2, 1000))
def test_bytes_count_only_by_the_time_they_take(name, n, size, link, m, c, factor):
    """So many times the bytes through cards that are so many times as fast take the same."""
    faster = replace(link, **{rate: getattr(link, rate) * factor for rate in RATES})
    same = forecast(name, n, size, link, m, c).publish_s
    assert forecast(name, n, size * factor, faster, m, c).publish_s == pytest.approx(same, rel=ROUNDING)


@pytest.mark.parametrize("n", [2, 3, 7, 12, 24])
def test_latency_counts_once_per_hop(n):
    """Closed forms grow by one per hop to the furthest host; a binomial's by 1 more at most, a multitree's by 2."""
    late = replace(EQUAL, latency_s=0.25)
    for name in MAKE:
        for m, c in itertools.product(STRATEGIES[STRATEGY.get(name, name)].m(n), (1, 2) if name in SHARDED else (1,)):
            hops = (expected(name, n, SIZE, late, m, c) - closed(name, n, m, c)) / 0.25
            furthest = max(map(depth, MAKE[name](n, m * c, m, c).routes))
            slack = {"binomial": 1, "multitree": 2}.get(name, 0)
            assert furthest <= round(hops, 6) <= furthest + slack


def every(name, n, size, link):
    """Return the forecast of each pair of numbers in a strategy's grid, one by one."""
    grid = itertools.product(STRATEGIES[name].m(n), STRATEGIES[name].c)
    return [forecast(name, n, size, link, m, c) for m, c in grid]


@pytest.mark.parametrize("n", [1, 2, 5, 13, 24])
@pytest.mark.parametrize("name", STRATEGIES)
def test_open_numbers_are_the_best_of_the_grid(name, n):
    """By trying all of them; also with one of the two fixed."""
    for link in (PRESETS["10GbE"], replace(PRESETS["1GbE"], overhead_s=0.004), EQUAL):
        tried = every(name, n, SIZE, link)
        said = forecast(name, n, SIZE, link)
        assert said in tried
        assert said.publish_s == min(each.publish_s for each in tried)
        at_its_m = [each.publish_s for each in tried if each.m == said.m]
        assert forecast(name, n, SIZE, link, m=said.m).publish_s == min(at_its_m) == said.publish_s
        middle = tried[len(tried) // 2].c
        at_this_c = min(each.publish_s for each in tried if each.c == middle)
        assert forecast(name, n, SIZE, link, c=middle).publish_s == at_this_c


@pytest.mark.parametrize("size", [1, 40_000, 1 << 20, SIZE, 10**9])
@pytest.mark.parametrize("n", [1, 3, 16, 24])
def test_the_best_is_the_best_of_everything_that_its_chunks_allow(n, size):
    """Chunks from 128 KiB to 4 MiB, except where a strategy has none of these; of equal ones the first strategy's."""
    dear = [replace(PRESETS["10GbE"], overhead_s=overhead_s) for overhead_s in (0.002, 0.005)]
    for link in (*PRESETS.values(), *dear):
        fastest = []
        for name in STRATEGIES:
            tried = every(name, n, size, link)
            allowed = [each for each in tried if 128 << 10 <= size / (each.m * each.c) <= 4 << 20]
            fastest.append(min((each.publish_s, i) for i, each in enumerate(allowed or tried)))
        said = best(n, size, link)
        assert said.publish_s == min(fastest)[0]
        assert said.strategy == list(STRATEGIES)[[each[0] for each in fastest].index(said.publish_s)]


@pytest.mark.parametrize("size", [1, 1 << 20, 10**9])
@pytest.mark.parametrize("n", [1, 4, 300])
def test_on_one_machine_nothing_is_faster_than_direct_sends(n, size):
    """Its cores carry every byte, whoever sends it: 20 MB to 4 workers took 4.5 times as long by a chain of chunks."""
    link = replace(PRESETS["10GbE"], one_machine=True)
    assert best(n, size, link) == forecast("star", n, size, link)
    assert forecast("chain", n, size, link) == forecast("chain", n, size, PRESETS["10GbE"])


@given(n=st.integers(1, 40), size=st.integers(1, 10**9), link=links)
def test_nothing_in_any_grid_is_faster_than_the_bound(n, size, link):
    """Whatever the cards, the latency and the time of a message."""
    cost = Cost.of(n, size, link)
    for strategy in STRATEGIES.values():
        ms = np.array(list(strategy.m(n)), dtype=np.float64)[:, None]
        cs = np.array(strategy.c, dtype=np.float64)[None, :]
        assert strategy.seconds(cost, ms, cs).min() >= bound_s(cost) * (1 - ROUNDING)


# ------------------------------------------------------------------ B: the patent's claims, corrected
@pytest.mark.parametrize(("n", "m"), [(100, 10), (298, 30)])
def test_both_of_the_seeds_settings_take_the_same(n, m):
    """(n - 1) / m is 9.9 in both, so 10.9 versions by bandwidth; with every host a relay it is 2 - 1 / n."""
    assert closed("relay", n, m) == pytest.approx(10.9, rel=ROUNDING)
    assert versions("relay", n, m) == pytest.approx(10.9, rel=ROUNDING)
    assert closed("relay", n, n) == pytest.approx(2 - 1 / n, rel=ROUNDING)
    assert forecast("relay", n, SIZE, EQUAL).m == n
    assert 5.4 < closed("relay", n, m) / closed("relay", n, n) < 5.5


def test_what_relays_gain_by_bandwidth_alone():
    """Over the best two-level tree 3.12 by closed form, over k-ary trees 1.38 and 1.47, over a binomial tree 0.83."""
    seed = closed("relay", 298, 30)
    assert forecast("tree", 298, SIZE, EQUAL).publish_s / seed == pytest.approx(3.12, abs=0.005)
    assert forecast("tree", 298, SIZE, EQUAL, c=99).m == 3
    assert [round(closed("deep", 298, k) / seed, 2) for k in (2, 3, 4)] == [1.47, 1.38, 1.47]
    assert closed("binomial", 298) / seed == pytest.approx(0.83, abs=0.005)
    # Tick by tick, two-level and k-ary trees are a version better: their last level is not full.
    assert min(versions("tree", 298, k) for k in range(10, 24)) == 33
    assert [versions("deep", 298, k) for k in (2, 3, 4)] == [14, 14, 15]
    assert versions("binomial", 298) == 9


def test_relays_move_the_bytes_elsewhere_and_no_fewer_of_them():
    """All strategies move n S; a tree of 30 costs the learner 30 S and its nodes 8.9 S, 30 relays S and 9.9 S."""
    sent = {name: make(298, 298 * 30, 30, 1).egress_bytes() / (298 * 30) for name, make in MAKE.items()}
    assert {name: round(each.sum(), 6) for name, each in sent.items()} == dict.fromkeys(MAKE, 298)
    assert (sent["tree"][LEARNER], sent["tree"][:30].mean()) == pytest.approx((30, 268 / 30))
    assert (sent["relay"][LEARNER], sent["relay"][:30].mean()) == pytest.approx((1, 297 / 30))


# ------------------------------------------------------------------ C: laws of plans
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 16, 31])
def test_the_furthest_host_is_as_far_as_the_theory_has_it(n):
    """Star 1, two levels 2, k-ary as a heap below the learner, binomial ceil(log2(n + 1)), chain n, relay 2."""
    assert {depth(route) for route in star(n, 1).routes} == {1}
    assert max(map(depth, binomial(n, 1).routes)) <= math.ceil(math.log2(n + 1))
    assert [depth(route) for route in chain(n, 1).routes] == [n]
    for k in range(1, n + 3):
        assert max(map(depth, tree(n, 1, k).routes)) == (1 if k >= n else 2)
        assert max(map(depth, tree(n, 1, k, levels=99).routes)) == heap_levels(n + 1, min(k, n))
        assert {depth(route) for route in relay(n, n, k).routes} == {1 if n == 1 else 2}
    for m in range(2, n + 1):
        for i, route in enumerate(multitree(n, n, m).routes):
            n_inner = len(range(i, n, m))
            assert depth(route) == 1 + heap_levels(n, math.ceil((n - 1) / n_inner)) <= 1 + n_inner


@given(n=st.integers(2, 30), m=st.integers(1, 30), epoch=st.integers(0, 40))
def test_no_two_relays_aim_at_one_host_in_step(n, m, epoch):
    """In every epoch, the learner's own step included; over all steps each relay has aimed at every host."""
    routes = relay(n, 100, m, epoch=epoch).routes
    for step in range(n):
        assert len({route[step][1] for route in routes}) == min(m, n)
    assert all(sorted(receiver for _, receiver in route) == list(range(n)) for route in routes)


def test_hosts_send_and_receive_as_many_messages_as_the_table_has():
    """Per host, of 14: the messages that it sends, in classes, and that it receives."""

    def counted(plan):
        sent = Counter(sender for _, sender, _ in plan.messages())
        received = Counter(receiver for _, _, receiver in plan.messages())
        return Counter(sent[host] for host in range(14)), {received[host] for host in range(14)}

    assert counted(star(14, 60)) == ({0: 14}, {1})
    assert counted(tree(14, 60, 4)) == ({3: 2, 2: 2, 0: 10}, {1}), "(n - k) / k, rounded up for the first"
    assert counted(tree(14, 60, 2, levels=3)) == ({2: 6, 0: 8}, {1})
    assert counted(binomial(14, 60)) == ({3: 1, 2: 2, 1: 3, 0: 8}, {1}), "log2 n at most"
    assert counted(chain(14, 60, 5)) == ({5: 13, 0: 1}, {5})
    assert counted(relay(14, 60, 4)) == ({13: 4, 0: 10}, {4})
    assert counted(relay(14, 60, 4, 3)) == ({39: 4, 0: 10}, {12})
    sent, received = counted(multitree(14, 140, 2, 5))  # f = 13 / 7, rounded up
    assert received == {10}
    assert sent == {10: 12, 5: 2}


#: Two to six hosts, few bytes; some of them are equal on purpose, as a multitree of n trees is a relay plan.
SAMPLE = [
    (name, n, size, m, c)
    for name in MAKE
    for n, size in ((2, 12), (3, 12), (6, 12), (6, 13))
    for m, c in itertools.product((2, 3, 6), (1, 2))
]


def test_digests_are_equal_exactly_where_plans_are():
    """Built twice they are; of 168 plans two that differ never have the same; the predicted time is no part of it."""
    plans = [MAKE[name](*numbers) for name, *numbers in SAMPLE]
    again = [MAKE[name](*numbers) for name, *numbers in SAMPLE]
    assert [plan.digest() for plan in plans] == [plan.digest() for plan in again]
    by_digest = {}
    for plan in plans:
        assert by_digest.setdefault(plan.digest(), plan) == plan
    assert len(by_digest) == len(set(plans)) > 50
    assert replace(plans[0], predicted_s=1.0).digest() == plans[0].digest()
    assert replace(plans[0], n_in_flight=7).digest() != plans[0].digest()


@pytest.mark.parametrize("name", MAKE)
def test_nobody_sends_before_it_has_received(name):
    """Each pair of each route, given to each host that comes later on it, to its receiver or to a stranger: refused."""
    plan = MAKE[name](5, 30, 3, 2)
    n_refused = 0
    for i, route in enumerate(plan.routes):
        for place, (_, receiver) in enumerate(route):
            for late in set(range(6)) - {host for _, host in route[:place]}:
                rerouted = (*route[:place], (late, receiver), *route[place + 1 :])
                broken = replace(plan, routes=(*plan.routes[:i], rerouted, *plan.routes[i + 1 :]))
                with pytest.raises(ValueError, match=f"host {late} cannot send to host {receiver}"):
                    broken.check()
                n_refused += 1
    assert n_refused >= 5 * len(plan.routes)


@given(
    name=st.sampled_from(list(MAKE)),
    n=st.integers(1, 12),
    size=st.integers(1, 40),
    m=st.integers(2, 60),
    c=st.integers(1, 9),
)
def test_a_name_with_numbers_is_the_plan(name, n, size, m, c):
    """Also with more relays than hosts or bytes, which count as so many; the planner's own name makes it once more."""
    strategy, numbers = STRATEGY.get(name, name), {"m": m, "c": LEVELS.get(name, c)}
    text = ",".join(f"{key}={numbers[number]}" for key, (number, _) in STRATEGIES[strategy].params.items())
    view = DistributionView(version=1, hosts=tuple(map(str, range(n))), model_bytes=size)
    planner = DISTRIBUTION.build(f"{strategy}:{text}" if text else strategy)
    plan = DISTRIBUTION.ask(planner, view)
    assert replace(plan, predicted_s=0.0) == MAKE[name](n, size, m, c) == MAKE[name](n, size, min(m, max(n, 2)), c)
    assert DISTRIBUTION.ask(DISTRIBUTION.build(planner.name), view) == plan
    used = {send.route for send in plan.sends}
    assert len(used) == len(plan.sends) or name in SHARDED
    assert max(len(used), 1) <= (min(m, n, size) if name in {"relay", "multitree"} else n)
    assert sum(send.stop - send.start for send in plan.sends) == plan.egress_bytes()[LEARNER]
