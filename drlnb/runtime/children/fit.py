"""Train a module of the user's on batches that a function gives by step: the learner of supervised work.

A task's *program* returns ``(module, optimizer, loss, batches)``.  From step 0 on it trains as this loop does::

    torch.manual_seed(seed)
    module, optimizer, loss, batches = program()
    for step in range(n_steps):
        inputs, targets = batches(step)
        optimizer.zero_grad()
        loss(module(inputs), targets).backward()
        optimizer.step()

Torch's random numbers are part of what is saved, those of Python and numpy are not: what `batches` gives must depend on
nothing but its step, or a task that goes on elsewhere goes on otherwise.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from drlnb.records.base import Facts
from drlnb.records.errors import ConfigError, NonFinite
from drlnb.records.spec import FitWork
from drlnb.rl.algorithms.learner import Around, Notify, plainly
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.same_bits import same_kernels
from drlnb.rl.pickled import named_or_unpacked
from drlnb.runtime.children.ambient import ambient, put_back

__all__ = ["FitLearner"]

_T = TypeVar("_T")
#: Keys of torch's random numbers among the saved tensors, and what is before the names of the others.
_RANDOM, _RANDOM_CUDA, _MODULE, _OPTIMIZER, _GROUP = "random", "random_cuda", "module/", "optimizer/", "group/"


class FitLearner:
    """Holds a program's module and optimiser, and makes their steps, one round at a time.

    Parameters
    ----------
    spec
        The task.
    device
        A torch device.

    Raises
    ------
    ConfigError
        If there is no such program.
    RuntimeError
        If it raises, or returns something else.
    """

    #: No actor needs to know where a parameter lies.
    layout = None

    def __init__(self, spec: FitWork, *, device: str = "cpu") -> None:
        self.spec, self.device = spec, torch.device(device)
        #: Is put around each gradient.
        self.around: Around = plainly
        self.n_steps = self._until = 0
        #: What the program set in libraries for itself (the default dtype, say); others on this slot do not have it.
        self._ambient: list[object] | None = None
        program = named_or_unpacked(spec.program)
        with self._own():
            torch.manual_seed(spec.seed)
            parts = _told("program()", program)
            if not (isinstance(parts, tuple) and len(parts) == 4 and isinstance(parts[0], torch.nn.Module)):
                raise RuntimeError(f"program() must return (module, optimizer, loss, batches), got {_shown(parts)}")
            self.module, self._optimizer, self._loss, self._batches = parts
            self.module.to(self.device)

    @contextlib.contextmanager
    def _own(self) -> Iterator[None]:
        """Set random numbers and libraries as this task left them, and afterwards as they were for others."""
        others = ambient()
        if self._ambient is not None:
            put_back(self._ambient)
        try:
            yield
        finally:
            self._ambient = ambient()
            put_back(others)

    def set(self, name: str, value: object) -> None:
        """Refuse a setting of an algorithm: there is none.

        Raises
        ------
        ConfigError
            Always.
        """
        raise ConfigError(f"{name} cannot be {value!r}: supervised work has no settings of an algorithm")

    def begin(self, round: int, n_timesteps: int) -> None:
        """Open a round: its steps go up to `n_timesteps`, counted from the task's first."""
        del round
        self._until = n_timesteps

    def stage(self, worker: int, fragment: Fragment) -> float:
        """Stage nothing: the data is here."""
        del worker, fragment
        return 0.0

    def finish(self, on_minibatch: Notify | None = None) -> dict[str, float]:
        """Make the round's steps.

        Parameters
        ----------
        on_minibatch
            Called after each step with its number (from 1) and how many there are.  If it raises, the round's steps
            are undone and the exception passes.

        Returns
        -------
        dict
            ``train/loss``, the mean over the round, and ``train/n_updates``, the steps since the task's first.

        Raises
        ------
        NonFinite
            If the loss or a parameter is NaN or infinite; nothing is changed.
        RuntimeError
            If a function of the program raises, or returns what it must not; nothing is changed.
        """
        before, first, n_steps = self.state(), self.n_steps, self._until - self.n_steps
        losses = []
        try:
            with self._own(), same_kernels(self.device, self.spec.deterministic):
                for number in range(1, n_steps + 1):
                    losses.append(self._step(self.n_steps))
                    self.n_steps += 1
                    if on_minibatch is not None:
                        on_minibatch(number, n_steps)
                values = torch.stack(losses).double()
                if len(bad := torch.nonzero(~values.isfinite())):
                    raise NonFinite(f"loss is {values[bad[0, 0]]} at step {first + int(bad[0, 0])}; update refused")
                if not all(bool(p.isfinite().all()) for p in self.module.parameters()):
                    raise NonFinite(f"parameters are not finite after step {self.n_steps - 1}; update refused")
        except BaseException:
            self.restore(*before)
            raise
        return {"train/loss": float(values.mean()), "train/n_updates": self.n_steps}

    def _step(self, step: int) -> Tensor:
        """Make a step; return its loss."""
        batch = _told(f"batches({step})", self._batches, step)
        if not (isinstance(batch, tuple | list) and len(batch) == 2):
            raise RuntimeError(f"batches({step}) must return (inputs, targets), got {_shown(batch)}")
        inputs, targets = _on(batch[0], self.device), _on(batch[1], self.device)

        def compute() -> Tensor:
            self._optimizer.zero_grad()
            loss = self._loss(self.module(inputs), targets)
            if not (isinstance(loss, Tensor) and loss.ndim == 0):
                shape = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else _shown(loss)
                raise TypeError(f"loss must return a tensor without axes, got {shape}")
            loss.backward()
            return loss.detach()

        loss: Tensor = _told(f"step {step}", self.around, _length(inputs), compute)
        _told(f"the optimizer at step {step}", self._optimizer.step)
        return loss

    # ------------------------------------------------------------------------------------- what goes out and in
    def published(self) -> np.ndarray:
        """Return the module's state as the bytes of a safetensors file."""
        return _bytes(self.module.state_dict())

    def state(self) -> tuple[Facts, np.ndarray]:
        """Return plain data and the bytes of a safetensors file: everything needed to go on exactly."""
        optimizer = self._optimizer.state_dict()
        kept = {f"{i}/{name}": value for i, row in optimizer["state"].items() for name, value in row.items()}
        with self._own():
            tensors = {_RANDOM: torch.get_rng_state()}
            if self.device.type == "cuda":
                tensors[_RANDOM_CUDA] = torch.cuda.get_rng_state()
        tensors |= {_MODULE + name: tensor for name, tensor in self.module.state_dict().items()}
        tensors |= {_OPTIMIZER + key: value for key, value in kept.items() if isinstance(value, Tensor)}
        numbers = {key: value for key, value in kept.items() if not isinstance(value, Tensor)}
        groups = []
        for i, group in enumerate(optimizer["param_groups"]):  # a learning rate may be a tensor
            tensors |= {f"{_GROUP}{i}/{name}": value for name, value in group.items() if isinstance(value, Tensor)}
            groups.append({name: value for name, value in group.items() if not isinstance(value, Tensor)})
        return {"n_steps": self.n_steps, "groups": groups, "numbers": numbers}, _bytes(tensors)

    def restore(self, meta: Facts, buffer: np.ndarray) -> None:
        """Go on from :meth:`state`.

        Raises
        ------
        RuntimeError
            If it was that of another module, or of another kind of optimiser.
        """
        tensors = safetensors.torch.load(buffer.tobytes())
        kept = {**meta["numbers"], **_below(_OPTIMIZER, tensors)}
        rows: dict[int, dict[str, object]] = {}
        for key, value in kept.items():
            i, _, name = key.partition("/")
            rows.setdefault(int(i), {})[name] = value
        groups = [group | _below(f"{_GROUP}{i}/", tensors) for i, group in enumerate(meta["groups"])]
        optimizer = {"state": rows, "param_groups": groups}
        what = "what was saved of this task does not fit its program"
        _told(what, self.module.load_state_dict, _below(_MODULE, tensors))
        _told(what, self._optimizer.load_state_dict, optimizer)
        with self._own():
            torch.set_rng_state(tensors[_RANDOM])
            if _RANDOM_CUDA in tensors and self.device.type == "cuda":
                torch.cuda.set_rng_state(tensors[_RANDOM_CUDA])
        self.n_steps = int(meta["n_steps"])


def _told(what: str, call: Callable[..., _T], *args: object) -> _T:
    """Call something of the user's; say in one line what raised.

    Raises
    ------
    RuntimeError
        If it raised, or wanted to end this process, which others use, too.
    """
    try:
        return call(*args)
    except torch.OutOfMemoryError:  # whoever called has more room to give
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        raise RuntimeError(f"{what} raised {type(error).__name__}: {said}".rstrip(": ")) from error


def _shown(value: object) -> str:
    """Return a value in one short line."""
    return f"{' '.join(repr(value).split()):.80}"


def _on(value: Any, device: torch.device) -> Any:
    """Return tensors, also those in tuples, lists and mappings, on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _on(part, device) for key, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [_on(part, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)  # a named tuple, or a plain one
    return value


def _length(value: Any) -> int:
    """Return the samples of a batch: the length of its first tensor."""
    while isinstance(value, Mapping | tuple | list):
        value = next(iter(value.values() if isinstance(value, Mapping) else value), None)
    return len(value) if isinstance(value, Tensor) and value.ndim else 1


def _bytes(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """Return tensors as the bytes of a safetensors file; those that share memory are each written."""
    alone = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return np.frombuffer(safetensors.torch.save(alone), np.uint8)


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
