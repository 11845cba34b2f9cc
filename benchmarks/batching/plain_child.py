"""Train the module of :mod:`benchmarks.batching.work` by a plain loop in a process of its own, and print its times.

The first line of standard input is JSON: ``n_steps``, and ``out``, the file for the trained module's parameters.  It
prints ``ready`` when everything has been imported, and begins at the second line.
"""

import json
import sys
import time
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """Train, write, print."""
    asked = json.loads(sys.stdin.readline())
    import safetensors.torch
    import torch

    torch.set_num_threads(1)
    from benchmarks.batching import work

    data, module = work.data_set(), work.module()
    print("ready", flush=True)
    sys.stdin.readline()
    began, ends = time.monotonic(), []
    work.plain_loop(module, data, asked["n_steps"], lambda loss: ends.append(time.monotonic()))
    seconds = time.monotonic() - began
    Path(asked["out"]).write_bytes(safetensors.torch.save(module.state_dict()))
    print(json.dumps({"seconds": seconds, "n_timesteps": asked["n_steps"], "ends": ends}))


if __name__ == "__main__":
    main()
