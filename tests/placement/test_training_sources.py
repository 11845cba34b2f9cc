"""Trainings that are called by their names: in simulation, on a history, and what they need."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from drlnb.learned.placement.network import Policy, load, save
from drlnb.learned.placement.playing import makespan_s
from drlnb.placement import Job, train
from drlnb.planning.placement import GANGS, Cluster
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal
from drlnb.sim.placement import Conditions, FaultModel, FaultPath, TraceJob, load_trace
from drlnb.sim.placement.history import history_of
from drlnb.sim.placement.on_clock import play_on_clock
from drlnb.sim.placement.training import Site, any_batches, batches_after, batches_of, patent_after
from drlnb.sim.report import write_journal

SMALL = Cluster.uniform(1, 3)
FAILING = Site(SMALL, FaultModel(mtbf_days=1.0), Conditions(), 0)


@pytest.fixture(scope="module")
def trace():
    return load_trace()


def test_a_training_of_patent_writes_a_file_that_the_planner_reads(tmp_path, trace):
    """By the names that users give."""
    rewards = train(out=tmp_path / "p.npz", net="patent", budget_s=0.05, trace=trace, cluster=SMALL)
    assert all(np.isfinite(rewards))
    planner = GANGS.build(f"patent:weights={tmp_path / 'p.npz'}")
    batch = next(batches_of(trace, FAILING, np.random.default_rng(0)))
    assert makespan_s(batch, planner) > 0


@pytest.mark.slow
def test_a_training_of_scorer_writes_a_file_that_learned_reads(tmp_path, trace):
    """On a view that it has not seen; imitation and play both fit into a second."""
    view = next(next(any_batches(trace, 1)).play())
    rewards = train(out=tmp_path / "s.npz", budget_s=1.0, trace=trace)
    assert rewards
    assert all(np.isfinite(rewards))
    assert GANGS.ask(GANGS.build(f"learned:weights={tmp_path / 's.npz'}"), view).job == view.window[0].job


# ------------------------------------------------------------------ a past run
EIGHT, ILL = Cluster.uniform(1, 8), (1, 4, 6)
HOUR_S = 3600.0


def past_run(seed=0):
    """Return the journal of four jobs of an hour on eight slots, three of which fail each half an hour."""
    rates = [2 / HOUR_S if slot in ILL else 0.0 for slot in range(8)]
    path = FaultModel(mttr_s=600.0).path(rates, seed=seed)
    jobs = [TraceJob(f"j{i}", 0.0, 1, HOUR_S) for i in range(4)]
    stream = play_on_clock(EIGHT, jobs, "first", path, Conditions(checkpoint_s=None, restart_s=60.0))[1]
    return Journal(streams={"placement": stream})


def test_a_training_on_a_history_is_of_its_slots(tmp_path):
    """Its file names them, rounds are as many as were planned, and a seed is a network; a folder does as a journal."""
    journal = past_run()
    write_journal(journal.streams, tmp_path / "run")
    given = {"a": journal, "b": tmp_path / "run", "c": str(tmp_path / "run" / "journal")}
    for name, history in given.items():
        rewards = train(
            out=tmp_path / f"{name}.npz", net="patent", source="history", history=history, n_rounds=2, seed=4
        )
        assert len(rewards) == 2
    networks = [load(tmp_path / f"{name}.npz", Policy) for name in given]
    assert networks[0].slots == tuple([f"n0/slot{i}" for i in range(8)])
    assert all((networks[0].weights[k] == other.weights[k]).all() for other in networks[1:] for k in other.weights)


def test_a_training_goes_on_with_weights_of_the_same_slots(tmp_path):
    """Others are refused with both: of another number, and of other names."""
    how = {"net": "patent", "source": "history", "history": past_run(), "n_rounds": 1}
    train(out=tmp_path / "a.npz", **how)
    for weights, seed in ((None, 0), (tmp_path / "a.npz", 0)):
        train(out=tmp_path / "b.npz", weights=weights, seed=seed, **how)
    before, after = (load(tmp_path / name, Policy) for name in ("a.npz", "b.npz"))
    apart = max(np.abs(after.weights[name] - value).max() for name, value in before.weights.items())
    assert 0 < apart < 0.01  # one round of small steps
    train(out=tmp_path / "three.npz", net="patent", cluster=SMALL, n_rounds=1, budget_s=60)
    with pytest.raises(ConfigError, match="weights are of 3 slots; here is to be trained for n0/slot0, n0/slot1"):
        train(out=tmp_path / "c.npz", weights=tmp_path / "three.npz", **how)
    save(tmp_path / "other.npz", "patent", before.weights, tuple("abcdefgh"))
    with pytest.raises(ConfigError, match="weights are of a, b, c, d, e, f, g, h; here"):
        train(out=tmp_path / "c.npz", weights=tmp_path / "other.npz", **how)


def test_batches_of_a_history_are_its_jobs_on_faults_like_its_own():
    """The same jobs at once; other faults each time; a window where several are to be shown."""
    past = history_of(past_run())
    some = list(itertools.islice(batches_after(past, 0), 3))
    views = [next(batch.play()) for batch in some]
    assert [view.window[0].work_s for view in views] == [past.jobs[0].work_s] * 3
    assert [len(view.window) for view in views] == [1, 1, 1]
    assert len({makespan_s(batch, GANGS.build("first")) for batch in some}) == 3
    assert makespan_s(some[0], GANGS.build("first")) == makespan_s(some[0], GANGS.build("first"))
    several = list(itertools.islice(batches_after(past, 0, window=True), 4))
    assert [batch.window for batch in several] == [False, True, True, True]
    assert [len(next(batch.play()).window) for batch in several] == [1, 4, 4, 4]


@pytest.mark.slow
def test_it_learns_which_slots_have_failed(tmp_path):
    """Of eight slots three fail each half an hour: on other faults of these it comes near `healthiest`."""
    train(out=tmp_path / "p.npz", net="patent", source="history", history=past_run(), n_rounds=60, budget_s=300)
    planner, batches = GANGS.build(f"patent:weights={tmp_path / 'p.npz'}"), batches_after(history_of(past_run()), 99)
    shown = [next(batches) for _ in range(60)]
    logs = {
        name: [np.log(makespan_s(batch, each) / makespan_s(batch, GANGS.build("random"))) for batch in shown]
        for name, each in (("patent", planner), ("healthiest", GANGS.build("healthiest")))
    }
    mine, best = (np.exp(np.mean(logs[name])) for name in ("patent", "healthiest"))
    assert best < 0.8
    assert mine < 1 - (1 - best) / 2


@pytest.mark.slow
def test_the_scorer_trains_on_a_history(tmp_path):
    """It is of any cluster, so the file names no slots."""
    assert train(out=tmp_path / "s.npz", source="history", history=past_run(), budget_s=1.5)
    view = next(next(batches_after(history_of(past_run()), 0)).play())
    assert GANGS.ask(GANGS.build(f"learned:weights={tmp_path / 's.npz'}"), view).job == view.window[0].job


def test_before_a_run_it_is_trained_on_a_history_as_on_what_is_simulated(monkeypatch):
    """It knows the history's slots by their names."""
    monkeypatch.setattr("drlnb.sim.placement.training.BEFORE_RUN_S", 0.05)
    planner = patent_after(history_of(past_run()))
    view = next(next(batches_after(history_of(past_run()), 0)).play())
    names = tuple([f"n0/slot{i}" for i in reversed(range(8))])
    by_name, by_number = planner.plan(replace(view, names=names)), planner.plan(view)
    assert by_name.slots == tuple([7 - slot for slot in by_number.slots])


def test_a_history_without_failures_says_that_it_teaches_nothing_about_them(tmp_path, caplog):
    """And is trained on: jobs and distances are there."""
    stream = play_on_clock(SMALL, [TraceJob("a", 0.0, 1, 60.0)], "first", FaultPath([[]] * 3))[1]
    history = Journal(streams={"placement": stream})
    train(out=tmp_path / "p.npz", net="patent", source="history", history=history, n_rounds=1)
    assert [record.getMessage() for record in caplog.records] == [
        "no slot has failed in the 60 s of this history: it teaches nothing about that"
    ]


# ------------------------------------------------------------------ what is refused
def test_what_a_training_cannot_do_is_said_before_it_begins(tmp_path):
    """All that is wrong at once."""
    with pytest.raises(ConfigError) as refused:
        train(out=tmp_path / "no" / "s.npz", net="seed", source="past", budget_s=0, n_rounds=0)
    assert refused.value.problems == (
        "net must be scorer or patent, got 'seed'",
        "source must be simulate or history or live, got 'past'",
        "budget_s must be seconds above 0, got 0",
        "n_rounds must be a whole number above 0, got 0",
        f"out must be a file in a folder that is there, got {tmp_path / 'no' / 's.npz'}",
    )


def test_weights_are_not_written_onto_a_folder(tmp_path):
    """That is known before a training of minutes, whose weights would be lost."""
    with pytest.raises(ConfigError, match=f"out must be a file in a folder that is there, got {tmp_path}"):
        train(out=tmp_path, net="patent", cluster=SMALL)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"net": "patent"}, "net patent from source simulate needs cluster: it is of one cluster, such as"),
        ({"cluster": SMALL}, "net scorer from source simulate takes no cluster"),
        ({"n_rounds": 3}, "net scorer from source simulate takes no n_rounds"),
        ({"source": "history"}, "net scorer from source history needs history: the folder of a run, or what place"),
        ({"source": "history", "history": ".", "model": FaultModel()}, "from source history takes no model"),
        ({"source": "live"}, "source live is of net patent: what scorer learns from are many plays of the same batch"),
        ({"source": "live", "net": "patent"}, "net patent from source live needs jobs: batches of jobs"),
        ({"source": "live", "net": "patent", "jobs": [], "trace": load_trace()}, "from source live takes no trace"),
        ({"source": "live", "net": "patent", "jobs": []}, r"jobs must be batches of jobs, .* got \[\]"),
        ({"source": "live", "net": "patent", "jobs": [Job(print)]}, "jobs must be batches of jobs"),
        ({"source": "live", "net": "patent", "jobs": [[print]]}, r"jobs must be Job\(function, ...\), got <built-in"),
        (
            {"source": "live", "net": "patent", "jobs": [[Job(print, checkpoint="a")], [Job(print, checkpoint="a")]]},
            "checkpoint a is of several batches: the second one would go on where the first one ended",
        ),
        ({"source": "live", "net": "patent", "jobs": [[Job(print)]]}, "there is no Dask client here: train"),
    ],
)
def test_a_source_takes_what_is_its_own(tmp_path, given, why):
    """One line says what is missing, or too much; nothing was begun."""
    with pytest.raises(ConfigError, match=why) as refused:
        train(out=tmp_path / "p.npz", **given)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())
