"""Where a gang goes on: the newest step that all members of one gang have saved; what jobs may not be."""

import numpy as np
import pytest

from drlnb import placement
from drlnb.records.errors import ConfigError
from drlnb.runtime.placement.checkpoints import ResumePoint, load, newest_step, resume_point, save


def test_a_job_without_checkpoints_begins_at_the_beginning(tmp_path):
    """In a folder that need not be there."""
    assert resume_point(tmp_path / "a", 2) == ResumePoint(tmp_path / "a/gang-1-of-2", tmp_path / "a/gang-1-of-2", 0)


def test_a_gang_goes_on_from_the_newest_step_that_all_have_saved(tmp_path):
    """Rank 0 was ahead by one step; each member gets what it had saved itself."""
    first = resume_point(tmp_path, 2)
    for step, rank in ((5, 0), (5, 1), (10, 1), (10, 0), (15, 0)):
        save(first.saves_to, step, rank, 2, (step, rank))
    point = resume_point(tmp_path, 2)
    assert (point.saves_to.name, point.loads_from.name, point.step) == ("gang-2-of-2", "gang-1-of-2", 10)
    assert [load(point, rank) for rank in (0, 1)] == [(10, 0), (10, 1)]
    # A gang that saved nothing is passed over; one that did counts before older ones, even with an earlier step.
    save(point.saves_to, 20, 0, 2, "alone")
    assert resume_point(tmp_path, 2).step == 10
    third = resume_point(tmp_path, 2)
    assert third.saves_to.name == "gang-3-of-2"
    for rank in (0, 1):
        save(third.saves_to, 12, rank, 2, "later")
    # What a member of the first gang still writes changes nothing.
    save(first.saves_to, 15, 1, 2, "late")
    assert load(resume_point(tmp_path, 2), 0) == "later"


def test_files_that_nobody_needs_are_removed(tmp_path):
    """Older ones of a member, once all members have saved a newer step: those of the newest stay, whoever is ahead."""
    for step in range(1, 6):
        save(tmp_path, step, 0, 2, None)
    assert len(list(tmp_path.iterdir())) == 5
    save(tmp_path, 3, 1, 2, None)
    save(tmp_path, 6, 0, 2, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-3-rank-0",
        "step-3-rank-1",
        "step-4-rank-0",
        "step-5-rank-0",
        "step-6-rank-0",
    ]
    assert newest_step(tmp_path, 2) == 3


def test_what_cannot_be_pickled_leaves_no_file(tmp_path):
    """Nor does the step count."""
    with pytest.raises(TypeError):
        save(tmp_path, 1, 0, 1, (x for x in ()))
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_of_a_gang_of_another_size_are_refused(tmp_path):
    """Rather than begun anew, or mixed."""
    for rank in range(3):
        save(resume_point(tmp_path, 3).saves_to if not rank else tmp_path / "gang-1-of-3", 1, rank, 3, None)
    with pytest.raises(ConfigError, match=r"holds what 3 members have saved, the job has 2: give another folder"):
        resume_point(tmp_path, 2)


def test_a_file_that_is_not_there_is_named(tmp_path):
    """With what to do."""
    with pytest.raises(ConfigError, match=r"step-4-rank-1 cannot be read \(No such file or directory\): use a folder"):
        load(ResumePoint(tmp_path, tmp_path, 4), 1)


def test_a_job_says_all_that_is_wrong_with_it():
    """In one error."""
    with pytest.raises(ConfigError) as caught:
        placement.Job(3, n_slots=0, work_s=float("inf"), name=7)
    assert caught.value.problems == (
        "fn must be a plain function of a member, got 3",
        "n_slots must be a whole number above 0, got 0",
        "work_s must be seconds above 0, got inf",
        "name must be text, got 7",
    )


async def coroutine(m):
    return m


def test_a_job_takes_numpys_numbers_and_no_coroutine():
    """Its members would return what nobody awaits."""
    job = placement.Job(print, np.int64(2), np.float32(3.0), silent_s=np.float64(60.0))
    assert (job.n_slots, job.work_s, job.silent_s) == (2, 3.0, 60.0)
    with pytest.raises(ConfigError, match="fn must be a plain function of a member, got <function coroutine"):
        placement.Job(coroutine)
    with pytest.raises(ConfigError, match="silent_s must be seconds, at least 1, or None, got 0"):
        placement.Job(print, silent_s=0)


def test_the_door_has_the_names_that_it_promises():
    """Each is there; another one is refused."""
    assert all(getattr(placement, name) for name in placement.__all__)
    with pytest.raises(AttributeError, match=r"module 'drlnb\.placement' has no attribute 'plaice'"):
        placement.plaice  # noqa: B018 - the look is what is tested


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"planner": "etc"}, "gangs planner must be one of .*'ect'"),
        ({"order": "lifo"}, "order must be one of fifo, largest"),
        ({"backfill": "some"}, "backfill must be one of greedy, reserve"),
        ({"hold_s": -1.0}, "hold_s must be seconds, at least 0, got -1.0"),
    ],
)
def test_arguments_are_refused_before_a_cluster_is_asked(arguments, why, monkeypatch):
    """Each with a line of its own."""
    monkeypatch.setattr("drlnb.runtime.placement.placing.usable", lambda client, how: client)
    with pytest.raises(ConfigError, match=why):
        placement.place([], **arguments)
    with pytest.raises(ConfigError, match=r"jobs must be Job\(function, ...\), got 3"):
        placement.place([3])


def test_without_a_client_there_is_nothing_to_place_on():
    """It says how to give one."""
    with pytest.raises(ConfigError, match=r"there is no Dask client here: place\(jobs, distributed.Client"):
        placement.place([])
