"""Read a trained module of supervised work from its run directory."""

from pathlib import Path
from typing import TYPE_CHECKING

from drlnb.records.errors import CheckpointError
from drlnb.records.spec import FitWork
from drlnb.rl.checkpoints.files import MODEL
from drlnb.runtime.files import checkpoint
from drlnb.runtime.ipc.pickled_work import read_module

if TYPE_CHECKING:
    import torch

__all__ = ["load_module"]


def load_module(spec: FitWork, out: Path) -> "torch.nn.Module":
    """Return the module of a task's newest whole checkpoint, on the CPU and in evaluation mode.

    Parameters
    ----------
    spec
        The task.
    out
        Its run directory.

    Raises
    ------
    CheckpointError
        If it has no checkpoint yet.
    ConfigError
        If its program cannot be read here.
    """
    import torch

    from drlnb.runtime.ipc.tensors import from_bytes

    newest = checkpoint.latest(out / "checkpoints" / spec.name)
    if newest is None:
        raise CheckpointError(f"task {spec.name} has no checkpoint in {out / 'checkpoints' / spec.name} yet")
    module = read_module(out / spec.program)
    assert isinstance(module, torch.nn.Module)
    module.load_state_dict(from_bytes(newest.blobs[MODEL]))
    return module.eval()
