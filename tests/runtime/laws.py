"""Laws that the journal of every run must obey, whatever was killed in it."""

from collections import Counter
from pathlib import Path

from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.base import Event
from drlnb.records.columns import distribution, leasing
from drlnb.records.journal import Journal, Stream
from drlnb.records.replay import ParametersCarried

__all__ = ["check_journal", "check_laws"]


def check_laws(out: Path) -> Journal:
    """Assert every law on a run directory's journal and return it."""
    return check_journal(Journal.read(out))


def check_journal(journal: Journal) -> Journal:
    """Assert every law on a journal and return it."""
    for name, stream in journal.streams.items():
        result = replay(stream)
        assert result.difference is None, result.difference
        times = [record.t for record in stream.records if isinstance(record, Event)]
        assert times == sorted(times), f"{name}: time runs backwards"
        if stream.header.machine == "pool":
            _one_holder_per_slot(stream)
        else:
            _rounds(stream)
    return journal


def _one_holder_per_slot(stream: Stream) -> None:
    holder: dict[str, object] = {}
    # The stream may begin while a lease of another run is held: only grants made in it are followed.
    last = None
    for record in stream.records:
        if isinstance(record, leasing.LeaseGranted):
            assert last is None or record.fence > last, "fences must grow"
            last = record.fence
            for slot in record.slots:
                assert slot not in holder, f"{slot} granted to {record.task} while {holder.get(slot)} holds it"
                holder[slot] = record.fence
        elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired):
            for slot in record.slots:
                assert holder.pop(slot, record.fence) == record.fence, "a lease was released by another's fence"


def _rounds(stream: Stream) -> None:
    used = Counter((r.collector, r.round) for r in stream.of(words.DropExperience) if r.reason == "used")
    assert all(n == 1 for n in used.values()), "a fragment was used twice"
    committed = [r.version for r in stream.records if isinstance(r, words.ParametersCommitted | ParametersCarried)]
    assert committed == list(range(committed[0], committed[0] + len(committed))) if committed else True
    metrics = stream.of(words.MetricsRecorded)
    samples = {(r.collector, r.round): r.n_samples for r in stream.of(words.ExperienceArrived)}
    if not (stream.header.config or {})["n_collectors"]:
        assert all(r.metrics["train/n_updates"] == r.n_timesteps for r in metrics), "the slot counts other steps"
    elif metrics:
        opened = stream.of(words.TaskOpened)[0]
        ring = {(r.collector, r.round) for r in stream.of(words.DropExperience) if r.reason == "in the ring"}
        made = {key for key in ring if key[1] <= metrics[-1].round} or used
        total = sum(samples[key] for key in made)
        assert metrics[-1].n_timesteps - opened.n_timesteps == total, "steps shown are not the steps used"
    _returned_before_sent(stream)


def _returned_before_sent(stream: Stream) -> None:
    """After each commit under a lease that is held, the lease goes back before the first byte goes out."""
    held = set()
    waiting = False
    for record in stream.records:
        if isinstance(record, words.LeaseReceived):
            held.add(record.fence)
        elif isinstance(record, words.LeaseLost):
            held.discard(record.fence)
        elif isinstance(record, words.ParametersCommitted):
            waiting = record.fence in held
        elif isinstance(record, words.ReturnLease):
            held.discard(record.fence)
            waiting = False
        elif isinstance(record, distribution.SendParameters):
            assert not waiting, "parameters were sent while the lease was held"
