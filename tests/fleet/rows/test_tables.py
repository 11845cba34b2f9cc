"""Tables of a whole run, held against each other and against other readers of the same journal."""

import csv
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from drlnb.fleet.rows.board import Board
from drlnb.fleet.rows.export import MetricsExport
from drlnb.fleet.rows.tables import TABLES, from_second, pool_rows, table_rows
from drlnb.records import round as rounds
from drlnb.records.base import Event
from drlnb.records.columns import batching, leasing, swapping
from drlnb.records.columns.leasing import GradientsRestored, LeaseExpired, LeaseGranted, LeaseReleased
from drlnb.records.common import ClockRelated
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.records.journal import Anew, Journal, Stream, StreamOpened
from drlnb.records.round import EvaluationFinished, ExperienceArrived, GradientComputed, LeaseReceived
from drlnb.records.spec import RlWork
from drlnb.views import fleet
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold, fold_of
from tests.views.batching import steps

JOURNALS = Path(__file__).parents[2] / "journals"
NAMES = ("faults", "three-tasks-last", "two-tasks-one-slot")


@pytest.fixture(params=NAMES, scope="module")
def journal(request):
    return Journal.read(JOURNALS / request.param)


def specs_of(journal):
    names = {str(s.header.config["task"]) for s in journal.streams.values() if s.header.machine == "round"}
    return [RlWork(name=name, env="A-v0", total_timesteps=10**6, n_envs=1) for name in sorted(names)]


def pool_of(journal):
    (pool,) = (stream for stream in journal.streams.values() if stream.header.machine == "pool")
    return pool


def test_the_parts_of_a_round_are_the_whole_of_it(journal):
    """Acting, waiting for slots, updating and the rest, for each round of each task."""
    rows = table_rows(journal, "rounds")
    assert len(rows) > 10
    for row in rows:
        parts = sum(row[name] for name in ("collect_s", "wait_lease_s", "update_s", "control_s"))
        assert parts == pytest.approx(row["time_s"], abs=1e-9)


def test_each_lease_that_has_ended_is_a_row(journal):
    """As many as were released and expired; held from grant to end, computed within that, to the task that asked."""
    pool, rows = pool_of(journal), table_rows(journal, "leases")
    ends = [isinstance(record, LeaseExpired) for record in pool.of(LeaseReleased | LeaseExpired)]
    assert Counter(row["expired"] for row in rows) == Counter(ends)
    granted = {f"{one.fence.epoch}/{one.fence.token}": one for one in pool.of(LeaseGranted)}
    for row in rows:
        assert row["held_s"] == pytest.approx(row["ended_s"] - row["granted_s"], abs=1e-5)
        assert row["computed_s"] is None or row["computed_s"] <= row["held_s"] + 1e-5
        grant = granted.pop(row["fence"])
        assert (grant.task.rpartition("/")[2], grant.round) == (row["task"], row["round"])


def test_the_pools_share_is_that_of_its_leases(journal):
    """Seconds computed in the leases that have ended / slot-seconds from the first grant on, added up once more."""
    pool, leases = pool_of(journal), table_rows(journal, "leases")
    rows = list(pool_rows(pool))
    first_t = min(row["granted_s"] for row in leases)
    for last in rows[:: max(1, len(rows) // 20)]:
        if last["t_s"] <= first_t or last["utilisation"] is None:
            continue
        before = [row for row in rows if row["t_s"] < last["t_s"]]
        steps = zip(before, [*before[1:], last], strict=True)
        slot_s = sum(a["slots"] * max(0.0, b["t_s"] - max(a["t_s"], first_t)) for a, b in steps)
        computed_s = sum(row["computed_s"] or 0.0 for row in leases if row["ended_s"] <= last["t_s"])
        assert last["utilisation"] == pytest.approx(computed_s / slot_s)
        assert last["expired"] == sum(row["expired"] for row in leases if row["ended_s"] <= last["t_s"])


def test_every_episode_is_a_row(journal):
    """Also of rounds that are made again: the table is of what was played."""
    played = [e for s in journal.streams.values() for event in s.of(ExperienceArrived) for e in event.episodes]
    rows = table_rows(journal, "episodes")
    assert sorted((row["return"], row["length"]) for row in rows) == sorted(map(tuple, played))


def test_the_files_of_metrics_are_the_table_without_rounds_that_were_lost(journal, tmp_path):
    """Row by row, as text; evaluations are rows of their own."""
    export = MetricsExport(tmp_path)
    export.feed(entries_of(journal))
    export.close()
    for spec in specs_of(journal):
        with (tmp_path / f"{spec.name}.csv").open(newline="") as file:
            lines = [line for line in csv.DictReader(file) if line["time/fps"]]
        kept = {row["round"]: row for row in table_rows(journal, "metrics") if row["task"] == spec.name}
        assert [int(line["time/iterations"]) for line in lines] == sorted(kept)
        for line, (_, row) in zip(lines, sorted(kept.items()), strict=True):
            assert float(line["round/time_s"]) == row["round/time_s"]


def test_a_board_in_pieces_is_a_board_at_once(journal):
    """However the rows come, the tasks stand alike; in the end as far as the last round of the table."""
    specs, entries = specs_of(journal), list(entries_of(journal))
    whole = Board(specs)
    whole.feed(entries)
    for n in (1, 7):
        board = Board(specs)
        for i in range(0, len(entries), n):
            board.feed(entries[i : i + n])
        assert board.statuses() == whole.statuses()
    rows = table_rows(journal, "metrics")
    for name, status in whole.statuses().items():
        newest = max((row for row in rows if row["task"] == name), key=lambda row: (row["attempt"], row["round"]))
        assert status.n_timesteps == newest["n_timesteps"]
        assert status.ended
        evaluated = [e for s in journal.streams.values() for e in s.of(EvaluationFinished) if not e.failure]
        assert status.eval_mean_reward is None or evaluated


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8, 1.0])
def test_the_board_and_the_picture_say_the_same_of_each_task(journal, share):
    """State, remaining time, return and restarts: in run.tasks, on the command line and in the table of tasks."""
    specs, entries = specs_of(journal), list(entries_of(journal))
    board, fold = Board(specs), Fold()
    for watcher in (board, fold):
        watcher.feed(entries[: int(len(entries) * share)])
    view = fleet.tasks(fold, [spec.to_plain() for spec in specs])
    keys = [column.name for column in view.table]
    for row in view.rows():
        drawn, said = dict(zip(keys, row, strict=True)), board.statuses()[str(row[0])]
        assert (drawn["state"], drawn["restarts"], drawn["loss"]) == (said.word, said.n_restarts, said.last_loss)
        assert (drawn["eta"], drawn["ret"]) == (said.eta_s, said.ep_rew_mean)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 2.0])
def test_from_a_second_on_nothing_earlier_is_left_and_nothing_later_is_gone(journal, share):
    """Each stream by its own clock; what was answered to an event stays with it."""
    until_s = max(record.t for s in journal.streams.values() for record in s.records if isinstance(record, Event))
    since = share * until_s
    later = from_second(journal, since)
    assert later.streams.keys() == journal.streams.keys()
    for name, stream in later.streams.items():
        whole, rest = tuple(journal.streams[name].records), tuple(stream.records)
        assert rest == whole[len(whole) - len(rest) :]
        left_out = whole[: len(whole) - len(rest)]
        assert all(record.t < since for record in left_out if isinstance(record, Event))
        assert not rest or share == 0.0 or rest[0].t >= since


@pytest.mark.parametrize("table", TABLES)
def test_every_so_manieth_row(journal, table):
    """The first one, and so on; nothing else than a whole number above 0 can be asked for."""
    rows = table_rows(journal, table)
    for every in (1, 3, 10**6):
        assert table_rows(journal, table, every) == rows[::every]
    for every in (0, -1, 1.5, "2"):
        with pytest.raises(ConfigError, match="every must be a whole number >= 1, got"):
            table_rows(journal, table, every)


def test_an_empty_journal_has_empty_tables():
    """No table fails where nothing has happened yet."""
    assert [table_rows(Journal(streams={}), name) for name in TABLES] == [[]] * len(TABLES)


def test_a_step_that_several_learners_share_is_a_row_with_its_budget():
    share = batching.ComputeShare(
        fence=Fence(1, 1), slot="s", round=1, version=1, after_timesteps=1, split=1, step=0, first=0, n=1, chunk=0,
        lead="s", parameters="", swap=swapping.SwapOrder("all", 10, "median"),
    )  # fmt: skip
    step = swapping.SwapStepMeasured(t=1.0, plan_key="all", step_s=3.0, peak_bytes=9)
    header = StreamOpened(stream="task-a-a1", machine="round", config={}, origin="simulated", version="0")
    stream = Stream(header=header, records=(share, step), torn=False, source="a")
    (row,) = table_rows(Journal(streams={"task-a-a1": stream}), "swapping")
    assert row["memory_budget_bytes"] == 10


def test_gradient_steps_under_a_budget_are_rows_with_what_was_expected():
    """The budget is that of the command that they were made by; before there is a plan nothing is expected."""

    def made(key, memory_budget_bytes, **step):
        finish = rounds.FinishRound(
            fence=Fence(1, 1),
            slot="s",
            round=1,
            collectors=(0,),
            swap=swapping.SwapOrder(key, memory_budget_bytes, "median"),
        )
        return [finish, swapping.SwapStepMeasured(plan_key=key, peak_bytes=9, **step)]

    planned = swapping.SwapPlanned(planner="auto", plan_key="p", predicted_s=2.0, predicted_bytes=8)
    kept = swapping.SwapPlanned(planner="auto", plan_key=None, predicted_s=1.0, predicted_bytes=7)
    in_round = swapping.SwapPlanned(planner="auto", plan_key="p", round=2)
    records = [
        *made("all", 10, t=1.0, step_s=3.0), planned, in_round, *made("p", 10, t=2.0, step_s=2.5, stall_s=0.5),
        kept, *made("none", 20, t=3.0, step_s=1.5, swapped_bytes=4, n_saved=6),
    ]  # fmt: skip
    header = StreamOpened(stream="task-a-a1", machine="round", config={}, origin="simulated", version="0")
    stream = Stream(header=header, records=tuple(records), torn=False, source="a")
    first, second, third = table_rows(Journal(streams={"task-a-a1": stream}), "swapping")
    assert first == {
        "task": "a", "attempt": 1, "t_s": 0.0, "plan_key": "all", "step_s": 3.0, "stall_s": 0.0, "peak_bytes": 9,
        "swapped_bytes": 0, "n_saved": 0, "memory_budget_bytes": 10, "predicted_s": None, "predicted_bytes": None,
    }  # fmt: skip
    assert (second["predicted_s"], second["predicted_bytes"], second["stall_s"]) == (2.0, 8, 0.5)
    assert (third["predicted_s"], third["memory_budget_bytes"], third["n_saved"]) == (1.0, 20, 6)


def test_a_lease_has_the_bytes_that_were_brought_for_it(journal):
    """All that its task's streams say under its fence; nothing is known where they do not name it."""
    brought = Counter()
    for event in journal.of(LeaseReceived, GradientComputed, GradientsRestored):
        brought[f"{event.fence.epoch}/{event.fence.token}"] += getattr(event, "moved_bytes", 0)
    for row in table_rows(journal, "leases"):
        assert row["moved_bytes"] == brought.get(row["fence"])


def long_journal(n):
    """Return the journal of a task that holds a slot `n` times, brings 7 bytes there, and misses each third lease.

    Its clock is ahead of the pool's by 0.75 s, as it says in the end.
    """

    def fence(k):
        return Fence(epoch=1, token=k)

    def of_pool():
        for k in range(1, n + 1):
            grant = {"request_id": f"r/a/1/{k}", "task": "r/a", "attempt": 1, "round": k}
            yield leasing.SlotRequested(t=float(k), node="0", **grant)
            yield LeaseGranted(fence=fence(k), slots=("0/cpu0",), waited_s=0.0, **grant)
            yield leasing.LeaseReturned(t=k + 0.5, fence=fence(k), clean=True, computed_s=(0.25,))
            yield LeaseReleased(
                fence=fence(k), task="r/a", slots=("0/cpu0",), held_s=0.5, computed_s=(0.25,), reason="returned"
            )

    def of_task():
        for offset_s in (-0.5, -0.75):
            yield ClockRelated(t=1.0, clock="broker-e1", offset_s=offset_s, error_s=0.0)
        for k in (k for k in range(1, n + 1) if k % 3):
            yield LeaseReceived(t=float(k), request_id=f"a/1/{k}", fence=fence(k), slots=("0/cpu0",), waited_s=0.0)
            yield GradientComputed(
                t=k + 0.4, collector=0, round=k, fence=fence(k), slot="0/cpu0", elapsed_s=0.25, moved_bytes=7
            )

    def stream(name, machine, read):
        header = StreamOpened(stream=name, machine=machine, config={}, origin="measured", version="0")
        return Stream(header=header, records=Anew(read), torn=False, source=name)

    streams = (stream("broker-e1", "pool", of_pool), stream("task-a-a1", "round", of_task))
    return Journal(streams={each.header.stream: each for each in streams})


def test_a_lease_that_its_task_never_heard_of_takes_nothing_from_the_next():
    """Granted to a master that was gone: nothing is known of it, and the one after it has its own bytes."""
    rows = table_rows(long_journal(9), "leases")
    assert [row["moved_bytes"] for row in rows] == [7, 7, None] * 3


def test_times_of_leases_count_from_the_first_event_of_any_stream():
    """The task's, at 0.25 s on the pool's clock, so that the grant at 1 s is at 0.75 s."""
    assert [row["granted_s"] for row in table_rows(long_journal(3), "leases")] == [0.75, 1.75, 2.75]
    assert table_rows(long_journal(3), "pool")[0]["t_s"] == 0.75


@pytest.mark.parametrize("offset_s", [-1e6, 0.125])
def test_related_clocks_are_those_of_the_pictures(journal, offset_s):
    """With a relation of each task's clock in its stream, a table has the times that the fold of all records has."""

    def related(stream):
        told = ClockRelated(t=0.0, clock=pool_of(journal).header.stream, offset_s=offset_s, error_s=0.0)
        is_task = stream.header.machine == "round"
        return replace(stream, records=(*stream.records, *([told] if is_task else [])))

    streams = {name: related(stream) for name, stream in journal.streams.items()}
    whole = fold_of(Journal(streams=streams))
    pool = pool_of(journal)
    expected = list(pool_rows(pool, whole.offset_s(pool.header.stream)))
    assert table_rows(Journal(streams=streams), "pool") == expected


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["leases", "journal"])
def test_who_reads_a_long_journal_holds_little_of_it(how):
    """4,000 leases, of which one row is wanted, or nothing yet."""
    journal = long_journal(4_000)
    tracemalloc.start()
    read = table_rows(journal, "leases", 10**6) if how == "leases" else from_second(journal, 5.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read
    assert peak < 100_000


def test_splits_and_their_shares_are_rows_by_what_they_came_to():
    """Three steps of two members: seconds, samples that were used, and those that were not by their reason."""
    journal = steps.journal(steps.STORY)
    rows = table_rows(journal, "batching")
    assert [(row["split"], row["duration_s"], row["n_used"], row["n_lost"], row["cause"]) for row in rows] == [
        (1, 2.0, 100, 0, "all"), (2, 1.5, 80, 20, "cut"), (3, 1.5, 60, 40, "deadline")
    ]  # fmt: skip
    assert [(row.get("n_lost cut"), row.get("n_lost late")) for row in rows] == [(None, None), (20, None), (None, 40)]
    assert [row["t_s"] for row in rows] == [0.0, 2.0, 3.5]
    assert rows[0]["quorum_s"] is None
    shares = table_rows(journal, "shares")
    assert len(shares) == 6
    cut = {"split": 2, "member": steps.SLOW, "n_planned": 40, "n_done": 20, "finish_s": 1.5, "fate": "cut"}
    assert {key: shares[3][key] for key in cut} == cut
    assert {row["slowed"] for row in shares} == {1.0}
    emulated = [steps.slowed(0.0, steps.SLOW, 4.0), steps.planned(1, 9, 9), steps.ordered(1, steps.SLOW, 4.0)]
    assert [row["slowed"] for row in table_rows(steps.journal(emulated), "shares")] == [1.0, 4.0]


@pytest.mark.parametrize("n_attempts", [1, 2])
def test_steps_of_an_attempt_that_was_killed_before_their_round_was_committed_are_not_used(n_attempts):
    """The second round of the first attempt is made again by the next; of a run that goes on it is being made."""
    attempts = [[*steps.STORY, steps.COMMITTED, *steps.STORY], steps.STORY][:n_attempts]
    rows = table_rows(steps.journal(*attempts), "batching")
    assert [(row["attempt"], row["n_used"]) for row in rows] == [
        *[(1, 100), (1, 80), (1, 60)],
        *([(1, 100), (1, 80), (1, 60)] if n_attempts == 1 else [(1, 0)] * 3 + [(2, 100), (2, 80), (2, 60)]),
    ]
