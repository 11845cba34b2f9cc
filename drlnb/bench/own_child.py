"""Our side of ``drlnb bench rl``: one training in one process, no cluster; the twin of ``sb3_child``."""

import json
import sys
import time

__all__ = ["main"]


def main() -> None:
    """Train and evaluate what standard input says; print what was measured."""
    work = json.loads(sys.stdin.read())
    import torch

    torch.set_num_threads(1)
    from drlnb.bench.peers import own_spec
    from drlnb.rl.collecting.evaluation import evaluate_parameters as evaluate
    from drlnb.rl.local.train import train_local

    spec = own_spec(work)
    began = time.perf_counter()
    result = train_local(spec)
    seconds = time.perf_counter() - began
    found = evaluate(spec, result.parameters, n_episodes=work["n_eval_episodes"], seed=10_000 + work["seed"])
    said = {
        "seconds": seconds,
        "n_timesteps": result.n_timesteps,
        "collect_s": sum(row["round/collect_s"] for row in result.metrics),
        "update_s": sum(row["round/update_s"] for row in result.metrics),
        "mean_reward": found.mean,
    }
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
