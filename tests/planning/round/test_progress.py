"""Counters and scalars of a task."""

import pytest

from drlnb.planning.round.progress import Progress
from drlnb.records.round import TaskOpened


def opened(t, *, n_rounds=0, n_timesteps=0, elapsed_s=0.0, episodes=(), window=100):
    """Return the counters of a task that has been opened."""
    progress = Progress()
    progress.opened(
        TaskOpened(
            t=t, attempt=1, version=0, n_bytes=0, n_rounds=n_rounds, n_timesteps=n_timesteps, elapsed_s=elapsed_s,
            episodes=episodes,
        ),
        window,
    )  # fmt: skip
    return progress


def test_the_scalars_of_a_round():
    """By hand: 10 s since the start of training, a round of 4 s with 2 acting, 0.5 waiting, 1 computing."""
    progress = opened(3.0, n_rounds=2, n_timesteps=80, elapsed_s=6.0, episodes=((4.0, 7),))
    assert progress.version == 3
    progress.collected(0, 2.0, ((2.0, 5),))
    progress.collected(1, 1.0, ())
    progress.update_s, progress.push_s = 1.0, 0.25
    progress.waited_s = 0.5
    progress.finished(20, 100)
    assert progress.metrics(7.0) == {
        "rollout/ep_rew_mean": 3.0,
        "rollout/ep_len_mean": 6.0,
        "time/iterations": 3,
        "time/total_timesteps": 100,
        "time/time_elapsed": 10.0,
        "time/fps": 10.0,
        "round/time_s": 4.0,
        "round/collect_s": 2.0,
        "round/wait_lease_s": 0.5,
        "round/update_s": 1.0,
        "round/push_s": 0.25,
        "round/control_s": 0.5,
    }


def test_the_success_rate_is_over_the_same_window():
    """A success before the last hundred episodes is forgotten; the checkpoint's episodes count."""
    progress = opened(0.0, episodes=((4.0, 7, 1.0), (4.0, 7, 0.0)))
    assert progress.metrics(1.0)["rollout/success_rate"] == 0.5
    progress.collected(0, 1.0, ((1.0, 1, 0.0),) * 99)
    progress.finished(1, 100)
    assert progress.metrics(1.0)["rollout/success_rate"] == 0.0


def test_no_episode_and_no_time():
    """Without episodes there is no mean return; without time the speed is 0."""
    progress = opened(1.0)
    row = progress.metrics(1.0)
    assert row["time/fps"] == 0.0
    assert "rollout/ep_rew_mean" not in row


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_episodes_enter_the_window_in_collector_order(order):
    """Whoever was faster: the curve depends on the seed, not on the race."""
    progress = Progress()
    for i in order:
        progress.collected(i, 1.0, ((float(i), 1),))
    progress.finished(1, 100)
    assert progress.episodes == [(0.0, 1), (1.0, 1)]


@pytest.mark.parametrize("window", [1, 42])
def test_the_window_keeps_the_latest_episodes(window):
    """So many as the task says, also of a checkpoint's."""
    progress = opened(0.0, episodes=tuple((float(i), 1) for i in range(130)), window=window)
    assert (progress.episodes[0], len(progress.episodes)) == ((130.0 - window, 1), window)
    progress.collected(0, 1.0, ((130.0, 1),))
    progress.finished(1, window)
    assert (progress.episodes[0], progress.episodes[-1]) == ((131.0 - window, 1), (130.0, 1))
