"""Have an optimiser of the user's own step tensor by tensor, and put what it keeps into a text.

The optimisers that have a name here step one flat tensor; of another class nobody knows whether it works number by
number, so it gets each tensor as a parameter.  It is tried when it is made: twelve steps, with its state written and
read in the middle, must give the bits of twelve without.
"""

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.pickled import unpack
from drlnb.rl.schedules import parse_schedule

__all__ = ["Make", "OwnOptimizer", "own_optimizer"]

#: Makes an optimiser of parameters.
Make: TypeAlias = Callable[[Sequence[Tensor]], torch.optim.Optimizer]
#: Most bytes of a state: as text in a frame's header, which has 64 MiB.
_MOST_BYTES = 1 << 25
#: Steps of the trial before its state is read, and after.
_N_TRIED = 6


class OwnOptimizer:
    """An optimiser of the user's own class.

    Parameters
    ----------
    make
        Makes it.
    places
        Values of each parameter, and where its gradient will be; both are used in place.
    """

    def __init__(self, make: Make, places: Iterable[tuple[Tensor, Tensor]]) -> None:
        self._places = [(torch.nn.Parameter(values.detach()), values.detach(), grad) for values, grad in places]
        for parameter, _, grad in self._places:
            parameter.grad = grad
        self._optimizer = make([parameter for parameter, *_ in self._places])

    def step(self, learning_rate: float) -> None:
        """Take one step along the gradients."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        for parameter, values, grad in self._places:
            if parameter.data_ptr() != values.data_ptr():  # it has put another tensor there
                values.copy_(parameter.detach())
                parameter.data = values
            parameter.grad = grad

    def state(self) -> str:
        """Return what it keeps.

        Raises
        ------
        ConfigError
            If that is more than travels between two processes.
        """
        written = io.BytesIO()
        torch.save(self._optimizer.state_dict(), written)
        if (n_bytes := written.tell()) > _MOST_BYTES:
            kind = type(self._optimizer).__name__
            raise ConfigError(
                f"policy_kwargs: optimizer_class {kind} keeps {n_bytes:,} bytes, at most {_MOST_BYTES:,} can travel: "
                "take a smaller network, or an optimizer that has a name here"
            )
        return base64.b64encode(written.getvalue()).decode("ascii")

    def restore(self, state: str) -> None:
        """Go on from :meth:`state`; runs no code of the text."""
        read = io.BytesIO(base64.b64decode(state))
        self._optimizer.load_state_dict(torch.load(read, map_location="cpu", weights_only=True))


def own_optimizer(spec: RlWork) -> Make | None:
    """Return what makes the optimiser that a task's settings hold as code, tried; None: theirs has a name.

    Raises
    ------
    ConfigError
        If it cannot be made, or step, or does not go on from its state as if nothing had been.
    """
    kwargs = spec.hyperparameters.get("policy_kwargs") or {}
    packed = kwargs.get("optimizer_class")
    if packed is None or isinstance(packed, str):
        return None
    first, arguments = parse_schedule(spec.hyperparameters["learning_rate"])(1.0), kwargs.get("optimizer_kwargs") or {}
    name = f"policy_kwargs: optimizer_class {packed['name']}"
    try:
        kind = unpack(packed["pickled"])

        def make(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
            made: torch.optim.Optimizer = kind(parameters, lr=first, **arguments)
            return made

        goes_on = _goes_on(make)
    except Exception as error:  # whatever the user's code raises
        raise ConfigError(f"{name} cannot train here: {type(error).__name__}: {error}") from error
    if not goes_on:
        raise ConfigError(
            f"{name} would not go on after a resume as without one: let it keep everything in its state and "
            "param_groups, in float32 or numbers, and draw no random numbers"
        )
    return make


def _goes_on(make: Make) -> bool:
    """Return whether an optimiser that is made anew and given the state of another goes on with the same bits."""
    values = [torch.linspace(-1.0, 1.0, 6).view(2, 3), torch.linspace(0.5, 1.0, 3)]
    gradients = [torch.zeros_like(each) for each in values]
    one = OwnOptimizer(make, zip(values, gradients, strict=True))

    def steps(optimizer: OwnOptimizer, first: int) -> None:
        for number in range(first, first + _N_TRIED):
            for each in gradients:
                each.copy_(torch.linspace(-1.0, 1.0, each.numel()).view(each.shape).mul(number + 1).sin())
            optimizer.step(1e-3)

    steps(one, 0)
    copies = [each.clone() for each in values]
    other = OwnOptimizer(make, zip(copies, gradients, strict=True))
    other.restore(one.state())
    steps(one, _N_TRIED)
    steps(other, _N_TRIED)
    return all(torch.equal(a, b) for a, b in zip(values, copies, strict=True))
