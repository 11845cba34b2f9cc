"""Evaluate a module between two epochs so that its training does not notice."""

from collections.abc import Callable, Mapping

import torch

from drlnb.records.settings import quoted
from drlnb.runtime.children.ambient import ambient, put_back
from drlnb.runtime.children.told import told

__all__ = ["evaluated"]


def evaluated(
    what: str, module: torch.nn.Module, evaluate: Callable[[torch.nn.Module], object], alive: Callable[[], None]
) -> dict[str, float]:
    """Return what a user's function says of a module, as ``eval/...``.

    It is called in evaluation mode and without gradients; random numbers, what it sets in libraries, and which parts of
    the module are in training mode are as before afterwards.

    Parameters
    ----------
    what
        Its name, for messages.
    module
        The module, on its device.
    evaluate
        Module -> scalars by name.
    alive
        Called at each forward pass of the module: an evaluation may take long.  What it raises passes, whatever the
        function does about it.

    Raises
    ------
    RuntimeError
        If the function raised, or returned something else than a mapping of names to numbers.
    """
    stopped: list[Exception] = []

    def beat(*_: object) -> None:
        try:
            alive()
        except Exception as error:
            stopped.append(error)
            raise

    modes = {part: part.training for part in module.modules()}
    hook, others = module.register_forward_hook(beat), ambient()
    module.eval()
    try:
        with torch.no_grad():
            said = told(what, evaluate, module)
    finally:
        put_back(others)
        hook.remove()
        module.train(modes[module])  # some do more than to set a flag
        for part, training in modes.items():
            part.training = training
        if stopped:
            raise stopped[0]
    return _scalars(what, said)


def _scalars(what: str, said: object) -> dict[str, float]:
    """Return what an evaluation said as metrics; raise RuntimeError if it is something else."""
    if not isinstance(said, Mapping):
        raise RuntimeError(f"{what} must return scalars by name, such as {{'loss': 0.1}}, got {quoted(said)}")
    scalars = {}
    for name, value in said.items():
        try:
            if not isinstance(name, str) or not name or isinstance(value, str | bytes):
                raise TypeError
            scalars[f"eval/{name}"] = float(value)
        except (TypeError, ValueError, RuntimeError):
            raise RuntimeError(f"{what} must return scalars by name, got {name!r}: {quoted(value)}") from None
    return scalars
