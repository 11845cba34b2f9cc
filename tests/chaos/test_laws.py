"""The laws of chaos find what is planted; its plan is drawn from the seed."""

import contextlib
import subprocess
from collections import Counter

import psutil
import pytest

from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened
from tests.chaos import course
from tests.chaos.arena import KINDS
from tests.chaos.family import Family
from tests.chaos.laws import broken_laws
from tests.survivors import survivors


def F(token):
    return Fence(epoch=1, token=token)


def stream(name, machine, config, *records):
    header = StreamOpened(stream=name, machine=machine, config=config, origin="measured", version="0")
    return Stream(header=header, records=records, torn=False, source="here")


def asked(t):
    return leasing.RequestPolled(t=t, request_id="q")


def granted(token, attempt=1, slot="s"):
    return leasing.LeaseGranted(
        fence=F(token), request_id=f"q{token}", task="r/a", attempt=attempt, round=token, slots=(slot,), waited_s=0.0
    )


def released(token, slot="s"):
    return leasing.LeaseReleased(
        fence=F(token), task="r/a", slots=(slot,), held_s=1.0, computed_s=(1.0,), reason="returned"
    )


def stopped(token):
    return leasing.LeaseReleased(
        fence=F(token), task="r/a", slots=("s",), held_s=1.0, computed_s=(0.0,), reason="task-stopped"
    )


def expired(token, slot="s"):
    return leasing.LeaseExpired(fence=F(token), task="r/a", slots=(slot,), held_s=1.0, silent_s=1.0)


def opened(attempt=1, version=0):
    return words.TaskOpened(
        t=0.0, attempt=attempt, version=version, n_rounds=0, n_timesteps=0, elapsed_s=0.0, episodes=(), n_bytes=0
    )


def received(t, token):
    return words.LeaseReceived(t=t, request_id=f"q{token}", fence=F(token), slots=("s",), waited_s=0.0)


def lost(token):
    return words.LeaseLost(t=1.5, fence=F(token), reason="silent")


def committed(t, version, token):
    return words.ParametersCommitted(t=t, version=version, fence=F(token))


def returned(token):
    return words.ReturnLease(fence=F(token), clean=True, computed_s=(1.0,))


def used(round_):
    return words.DropExperience(key="k", collector=0, round=round_, reason="used")


#: The pool's clock is 10 s ahead of the master's.
GOOD_POOL = (asked(11.0), granted(1), asked(12.0), released(1), asked(13.0), granted(2), asked(14.0), released(2))
GOOD_TASK = (
    opened(),
    received(1.001, 1),
    committed(1.9, 1, 1),
    returned(1),
    received(3.001, 2),
    committed(3.9, 2, 2),
    returned(2),
    used(1),
)


def laws(pool=GOOD_POOL, *attempts):
    streams = {"p": stream("p", "pool", {}, *pool)}
    for n, records in enumerate(attempts or (GOOD_TASK,)):
        streams[f"t{n}"] = stream(f"t{n}", "round", {"task": "a"}, *records)
    found = broken_laws(Journal(streams=streams), run="r")
    del found["replay"]  # these records were made by hand, no machine decided them
    return {law: texts for law, texts in found.items() if texts}


def test_a_good_run_breaks_nothing():
    """Two leases one after the other, one update under each, each before its lease is over."""
    assert laws() == {}


@pytest.mark.parametrize(
    ("law", "pool", "task", "text"),
    [
        ("holder", (asked(1.0), granted(1), granted(2)), GOOD_TASK[:1], "s is granted under #2 while #1 holds"),
        ("holder", (asked(1.0), granted(2), granted(1, slot="z")), GOOD_TASK[:1], "follows"),
        ("rounds", GOOD_POOL, (*GOOD_TASK[:3], committed(3.5, 3, 2)), "version 3 follows 1"),
        ("rounds", GOOD_POOL, (*GOOD_TASK, used(1)), "round 1 of collector 0 is used 2 times"),
        ("fences", GOOD_POOL, (*GOOD_TASK[:3], committed(1.95, 2, 1)), "2 updates under"),
        ("fences", GOOD_POOL, (opened(), committed(1.0, 1, 9)), "which the pool granted to None"),
        ("fences", GOOD_POOL, (opened(2), received(1.001, 1), committed(1.9, 1, 1)), "granted to .'r/a', 1."),
        ("fences", (*GOOD_POOL[:2], asked(12.0), expired(1)), (*GOOD_TASK[:2], committed(2.1, 1, 1)), "0.099 s or"),
        ("fences", GOOD_POOL, (*GOOD_TASK[:2], lost(1), committed(1.9, 1, 1)), "knew to be lost"),
    ],
)
def test_what_is_planted_is_found(law, pool, task, text):
    """Each law has a run that breaks it, and that law alone tells of it."""
    found = laws(pool, task)
    assert list(found) == [law]
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(found[law][0])


def test_two_masters_are_found():
    """By the order of the pool alone: an earlier attempt has a lease when a later one gets one, or gets it after."""
    both = (asked(11.0), granted(1), granted(2, attempt=2, slot="z"))
    both += (asked(12.5), released(2, "z"), asked(20.0), released(1))
    again = (
        asked(11.0),
        granted(1, attempt=2),
        asked(12.0),
        released(1),
        asked(13.0),
        granted(2),
        asked(14.0),
        released(2),
    )
    first = (opened(), received(1.001, 1), committed(1.5, 1, 1), returned(1))
    second = (opened(2), received(1.001, 2), committed(2.4, 1, 2), returned(2))
    (text,) = laws(both, first, second)["masters"]
    assert "attempt 2 is granted #2 while attempt 1 has #1" in text
    swapped = (opened(2), *first[1:]), (opened(), *second[1:])
    (text,) = laws(again, *swapped)["masters"]
    assert "attempt 1 is granted #2 after attempt 2 had one" in text


@pytest.mark.parametrize("ahead_s", [0.0, 1000.0])
def test_clocks_of_two_masters_are_not_compared(ahead_s):
    """One that was stopped for a while takes an update after the next attempt did: allowed, it has no effect."""
    pool = (asked(11.0), granted(1), asked(12.0), stopped(1), granted(2, attempt=2), asked(13.0), released(2))
    first = (opened(), received(1.001, 1), committed(9.0, 1, 1))
    second = (opened(2), received(2.001 + ahead_s, 2), committed(2.5 + ahead_s, 1, 2), returned(2))
    assert laws(pool, first, second) == {}


def test_nobody_goes_on_from_a_superseded_attempt():
    """Attempt 1 accepts version 2 after attempt 2 has asked: as long as nobody begins with it, that had no effect."""
    pool = (*GOOD_POOL[:6], asked(13.5), stopped(2))
    first = (opened(), received(1.001, 1), committed(1.9, 1, 1), returned(1), received(3.001, 2), committed(3.9, 2, 2))
    assert laws(pool, first, (opened(2, version=1),)) == {}
    assert list(laws(pool, first, (opened(2, version=2),))) == ["masters"]


def test_a_stream_that_decides_otherwise_is_found():
    """Records that no machine would write do not replay."""
    found = broken_laws(Journal(streams={"p": stream("p", "pool", {"x": 1}, *GOOD_POOL)}), run="r")
    assert found["replay"]


# ------------------------------------------------------------------ plan, rows, words
@pytest.mark.parametrize("n", [40, 200])
def test_every_kind_strikes_about_its_share(n):
    """Of 200, each kind is at most one or two off; of 40, none is missing."""
    kinds = Counter(strike.kind for strike in course.plan(n, 3))
    assert kinds.total() == n
    for kind, share in KINDS.items():
        assert abs(kinds[kind] - n * share / sum(KINDS.values())) <= 2
        assert kinds[kind] >= 1


@pytest.fixture
def parent():
    """Start a process with a child that outlives it; kill both at the end."""
    process = subprocess.Popen(["/bin/sh", "-c", "sleep 30 & echo; wait"], stdout=subprocess.PIPE)
    process.stdout.readline()
    children = psutil.Process(process.pid).children()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    assert survivors(children, 3.0) == []


def test_an_orphan_is_counted(parent):
    """The count must be able to miss its bar: a child that its dead parent left behind is a stray."""
    family = Family(parent.pid, client=None)
    assert len(family.look()) == 2
    assert family.strays() == []
    parent.kill()
    parent.wait()
    assert [stray.name() for stray in family.strays()] == ["sleep"]
