"""Learning curves with bands over seeds, and where each round's time went."""

import json

import numpy as np
import pytest

from drlnb.records.round import EvaluationFinished
from drlnb.views import learning, rounds
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold
from drlnb.views.learning import band
from tests.views.journals import Run


def seeds():
    """Two seeds of one group and one task alone."""
    run = Run().task("s0").task("s1").task("b")
    for n in (1, 2, 3):
        run.metrics("s0", n, n, 10 * n, rollout__ep_rew_mean=10.0 * n)
        run.metrics("s1", n, n, 10 * n, rollout__ep_rew_mean=20.0 * n)
        run.metrics("b", n, n, 10 * n, rollout__ep_rew_mean=1.0)
    return run


def grouped(journal):
    """Return columns that know of two seeds of one group."""
    fold = Fold(groups={"s0": "s", "s1": "s"})
    fold.feed(entries_of(journal))
    return fold


def test_a_group_is_one_curve_with_a_band():
    """Mean 15, 30, 45 between the seeds' own values; the task alone has no band."""
    view = learning.curves(grouped(seeds().journal()))
    assert [line["label"] for line in view.facts["lines"]] == ["b", "s"]
    points = {
        name: column[view.columns["points"]["line"] == 1].tolist() for name, column in view.columns["points"].items()
    }
    assert (points["x"], points["y"]) == ([10.0, 20.0, 30.0], [15.0, 30.0, 45.0])
    assert (points["lo"], points["hi"]) == ([10.0, 20.0, 30.0], [20.0, 40.0, 60.0])
    assert np.isnan(view.columns["points"]["lo"][view.columns["points"]["line"] == 0]).all()
    assert view.notes == ("bands reach from the lowest to the highest of up to 2 seeds",)


def test_a_band_reaches_only_where_all_seeds_are():
    """A seed that is behind ends the band, not the truth."""
    found = band([(np.array([0.0, 10.0]), np.array([0.0, 10.0])), (np.array([0.0, 4.0]), np.array([2.0, 2.0]))])
    assert found.x.tolist() == [0.0, 4.0]
    assert found.mean.tolist() == [1.0, 3.0]


def test_curves_in_every_form():
    """Figure and table carry the payload's numbers; NaN is null."""
    view = learning.curves(grouped(seeds().journal()))
    figure = json.loads(view.figure().to_json())
    lines = [trace for trace in figure["data"] if trace["meta"] == "line"]
    assert [trace["y"] for trace in lines] == [[1.0, 1.0, 1.0], [15.0, 30.0, 45.0]]
    assert view.rows()[0] == ["b", 10.0, 1.0, None, None]
    assert "NaN" not in view.figure().to_json()


def test_evaluation_is_a_curve_of_its_own():
    """Its name says that it is deterministic."""
    run = seeds()
    run.say(
        "task-b-a1", EvaluationFinished(t=4.0, version=3, mean_reward=7.0, std_reward=0.0, n_episodes=20, failure="")
    )
    labels = [line["label"] for line in learning.curves(run.journal()).facts["lines"]]
    assert labels[-1] == "b, deterministic evaluation"


def test_an_unknown_metric_names_the_known():
    """A slip of the finger is answered with what there is."""
    with pytest.raises(ValueError, match=r"no metric 'x' in this journal; it has rollout/ep_rew_mean"):
        learning.curves(seeds().journal(), "x")


@pytest.mark.thorough
def test_long_curves_are_thinned_without_losing_peaks():
    """5,000 rounds become at most 800 points, and the peak is one of them."""
    run = Run().task("a")
    for n in range(5000):
        run.metrics("a", float(n), n, n, rollout__ep_rew_mean=1e6 if n == 1234 else float(n % 7))
    points = learning.curves(run.journal()).columns["points"]
    assert len(points["x"]) <= 800
    assert points["y"].max() == 1e6


def test_sentences():
    """Word for word."""
    assert learning.curves(seeds().journal()).sentence == "latest rollout/ep_rew_mean: A 1, B 30, C 60"
    assert learning.curves(Run().task("a").journal()).sentence == "no rollout/ep_rew_mean yet"
    assert learning.curves(Run().journal()).sentence == "no tasks yet"
    assert rounds.anatomy(Run().journal()).sentence == "no finished rounds yet"


def parts(run, task, n, collect, wait, update, push, control):
    return run.metrics(
        task,
        n,
        n,
        n,
        round__time_s=collect + wait + update + control,
        round__collect_s=collect,
        round__wait_lease_s=wait,
        round__update_s=update,
        round__push_s=push,
        round__control_s=control,
    )


def test_anatomy_by_hand():
    """Means of two rounds: collect 2, wait 1, update 1, push 0.25 (which control's 0.5 held) and the rest 0.25."""
    run = Run().task("a")
    parts(run, "a", 1, 1.0, 1.0, 1.0, 0.25, 0.5)
    parts(run, "a", 2, 3.0, 1.0, 1.0, 0.25, 0.5)
    view = rounds.anatomy(run.journal())
    assert [row[2] for row in view.rows()] == [2.0, 1.0, 1.0, 0.25, 0.25]
    assert [row[3] for row in view.rows()] == pytest.approx([100 * x / 4.5 for x in (2, 1, 1, 0.25, 0.25)])
    assert view.sentence == "2 rounds: most time went into collect (44 %)"
    assert view.columns["bars"]["stop"][-1] == pytest.approx(4.5)


def test_parts_that_overlap_are_said():
    """Collecting while waiting makes the parts longer than the round."""
    run = parts(Run().task("a"), "a", 1, 2.0, 1.0, 1.0, 0.0, -1.0)
    assert rounds.anatomy(run.journal()).notes == (
        "collecting went on while a slot was waited for: the parts add up to more than the round",
    )
