"""Train a task in a process of its own, without a cluster, and print what was measured.

The first line of standard input is the work: the task's ``spec``; optionally ``seconds`` after which it ends,
``n_eval_episodes`` that are played afterwards, and the ``device`` of the learner.  It prints ``ready`` when everything
has been imported, and begins at the second line.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["LEAST", "main", "tenths"]

T = TypeVar("T")

#: Rounds that a training of limited seconds takes at least, however long they are.
LEAST = 4


def tenths(rounds: Sequence[T]) -> list[T]:
    """Return the rounds at which tenths of a training are done.

    Examples
    --------
    >>> tenths(range(25))
    [1, 4, 6, 9, 11, 14, 16, 19, 21, 24]
    """
    return [rounds[max(len(rounds) * tenth // 10, 1) - 1] for tenth in range(1, 11)]


def main() -> None:
    """Train, evaluate, print."""
    work = json.loads(sys.stdin.readline())
    import torch

    torch.set_num_threads(1)
    from drlnb.records.spec import RlWork
    from drlnb.rl.collecting.evaluation import evaluate_parameters
    from drlnb.rl.local.train import train_local

    spec = RlWork.from_plain(work["spec"])
    print("ready", flush=True)
    sys.stdin.readline()
    began, ends = time.monotonic(), []
    longest_s = work.get("seconds", float("inf"))

    def goes_on(metrics: dict[str, float]) -> bool:
        del metrics
        ends.append(time.monotonic())
        return ends[-1] < began + longest_s or len(ends) < LEAST

    result = train_local(spec, callback=goes_on, device=work.get("device", "cpu"))
    seconds = time.monotonic() - began
    n, mean = work.get("n_eval_episodes", 0), float("nan")
    if n:
        mean = evaluate_parameters(spec, result.parameters, n_episodes=n, seed=10_000 + spec.seed).mean
    measured = {
        "seconds": seconds,
        "n_timesteps": result.n_timesteps,
        "collect_s": sum(row["round/collect_s"] for row in result.metrics),
        "update_s": sum(row["round/update_s"] for row in result.metrics),
        "mean_reward": mean,
        "ends": ends,
        "curve": [row.get("rollout/ep_rew_mean", float("nan")) for row in tenths(result.metrics)],
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
