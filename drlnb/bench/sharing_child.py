"""An ordinary training in a process of its own, without a cluster; one of those that ``drlnb.bench.sharing`` compares.

First line of standard input: the task and how many seconds it may train.  It says ``ready`` when everything has been
imported, begins at the second line, and prints the second of each round's end on the machine's monotonic clock.
"""

import json
import sys
import time

__all__ = ["LEAST", "main"]

#: Rounds that a training takes at least, however long they are.
LEAST = 4


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Train what standard input says; print when the rounds ended."""
    work = json.loads(sys.stdin.readline())
    import torch

    torch.set_num_threads(1)
    from drlnb.records.spec import TaskSpec
    from drlnb.rl.local.train import train_local

    spec = TaskSpec.from_plain(work["spec"])
    _say("ready")
    sys.stdin.readline()
    ends: list[float] = []
    deadline = time.monotonic() + work["seconds"]

    def on_round(metrics: dict[str, float]) -> bool:
        del metrics
        ends.append(time.monotonic())
        return ends[-1] < deadline or len(ends) < LEAST

    train_local(spec, callback=on_round)
    _say(json.dumps(ends))


if __name__ == "__main__":
    main()
