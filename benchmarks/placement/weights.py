"""Train the network that travels with :mod:`drlnb.learned.placement`, and write it beside how it was made.

``python -m benchmarks.placement.weights [--trace FILE] [--seed S] [--budget S]`` takes seven minutes of one core.  Jobs
are of the first 70 % of the trace by time of submission: the bench of a planner with these weights has the others.
"""

import argparse
import json
import time
from pathlib import Path

import drlnb.learned.placement
from drlnb.learned.placement.network import save
from drlnb.learned.placement.train import train
from drlnb.sim.placement import Trace, load_trace
from drlnb.sim.placement.training import any_batches

__all__ = ["FOLDER", "TRAINED_FRAC", "main", "parts"]

#: Share of a trace, by time of submission, whose jobs are trained on.
TRAINED_FRAC = 0.7
#: Where the weights of the package are.
FOLDER = Path(drlnb.learned.placement.__path__[0]) / "weights"
#: Processor seconds of a training, by default.
_BUDGET_S = 420.0


def parts(trace: Trace) -> tuple[Trace, Trace]:
    """Return the jobs of a trace that are trained on, and the later ones."""
    n = int(TRAINED_FRAC * len(trace.jobs))
    return Trace(trace.name, trace.jobs[:n]), Trace(trace.name, trace.jobs[n:], sha256=trace.sha256)


def main(argv: list[str] | None = None) -> None:
    """Train the network and write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement.weights", description=main.__doc__)
    parser.add_argument("--trace", type=Path, help="CSV file (default: the package's sample)")
    parser.add_argument("--seed", type=int, default=0, help="of the network and of training (default 0)")
    parser.add_argument("--budget", type=float, default=_BUDGET_S, help=f"processor seconds (default {_BUDGET_S:g})")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder (default: the package's)")
    args = parser.parse_args(argv)
    trace = load_trace(args.trace)
    began_s = time.process_time()

    def progress() -> float:
        spent: float = (time.process_time() - began_s) / args.budget
        return min(1.0, spent)

    weights, rewards = train(any_batches(parts(trace)[0], args.seed), args.seed, progress)
    save(args.out / "learned.npz", "learned", weights)
    tenth = max(1, len(rewards) // 10)
    made = {
        "made_by": "python -m benchmarks.placement.weights --trace FILE",
        "seed": args.seed,
        "processor_s": args.budget,
        "trace_sha256": trace.sha256,
        "trained_frac": TRAINED_FRAC,
        "rounds": len(rewards),
        "log_ect_over_drawn": {
            "first_tenth": round(sum(rewards[:tenth]) / tenth, 4),
            "last_tenth": round(sum(rewards[-tenth:]) / tenth, 4),
        },
    }
    (args.out / "learned.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
