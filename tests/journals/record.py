"""Record the golden journals anew: ``python tests/journals/record.py``.

Each folder beside this file holds the journals of one simulated run; ``tests/planning/test_replay.py`` feeds their
events to fresh machines, which must decide the same again.  Record them anew only in a commit that changes decisions,
commands or records by design, and say why in its message: the difference of the files is what a reviewer reads.
"""

import shutil
from pathlib import Path

from drlnb.records.journal import line_of
from drlnb.sim.costs import Costs
from drlnb.sim.faults import Fault
from drlnb.sim.training.fleet import run_tasks

#: Folder -> arguments of the run.
RUNS = {
    "two-tasks-one-slot": {"n_tasks": 2, "n_slots": 1, "n_rounds": 6, "hold": "yield"},
    "three-tasks-last": {"n_tasks": 3, "n_slots": 2, "n_rounds": 5, "hold": "last", "n_nodes": 2},
    "faults": {
        "n_tasks": 2,
        "n_slots": 2,
        "n_rounds": 6,
        "hold": "round",
        "n_nodes": 2,
        "faults": (
            Fault(t=5.0, kind="collector", index=1),
            Fault(t=12.0, kind="executor", index=0),
            Fault(t=20.0, kind="node", index=0),
            Fault(t=27.0, kind="holder", index=0, down_s=1.0),
        ),
    },
    # Supervised work: nobody acts.
    "fit": {
        "n_tasks": 2,
        "n_slots": 1,
        "n_rounds": 0,
        "n_collectors": 0,
        "hold": "yield",
        "config": {
            "n_steps": 50,
            "total_timesteps": 180,
            "streams": False,
            "checkpoint_every": 1,
            "checkpoint_min_s": 0.0,
        },
        "faults": (
            Fault(t=2.5, kind="executor", index=0),
            Fault(t=4.5, kind="holder", index=0, down_s=1.0),
        ),
    },
}


def main() -> None:
    """Write every folder."""
    for name, shape in RUNS.items():
        arguments = {"n_collectors": 2, **shape}
        n_tasks = arguments.pop("n_tasks")
        pool, tasks = run_tasks(range(n_tasks), seed=1, costs=Costs(), **arguments)
        folder = Path(__file__).parent / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for stream in (pool.host.stream, *[stream for task in tasks for stream in task.streams]):
            lines = [line_of(record) for record in (stream.header, *stream.records)]
            (folder / f"{stream.header.stream}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
