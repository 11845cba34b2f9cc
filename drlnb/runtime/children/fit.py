"""Train a module of the user's on batches that are named by their step: the learner of supervised work.

A task's *program* returns ``(module, optimizer, loss, batches)``, and a fifth where the module is evaluated at the end
of each epoch.  From step 0 on it trains as this loop does::

    random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed)
    module, optimizer, loss, batches = program()
    for step in range(n_steps):
        inputs, targets = batches(step)
        module.zero_grad()
        loss(module(inputs), targets).backward()
        optimizer.step()

The random numbers of Python, numpy and torch are part of what is saved.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from drlnb.records.base import Facts
from drlnb.records.errors import ConfigError, NonFinite
from drlnb.records.settings import quoted
from drlnb.records.spec import FitWork
from drlnb.rl.algorithms.learner import Around, Notify, plainly
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.same_bits import same_kernels, seed_all
from drlnb.rl.pickled import named
from drlnb.runtime.children.ambient import ambient, put_back
from drlnb.runtime.children.data_sets import DataSets, batch_of, indices_of, n_samples_of, on_device
from drlnb.runtime.children.evaluated import evaluated
from drlnb.runtime.children.optimizer_state import put_together, taken_apart
from drlnb.runtime.children.shares.packed import sums_of, switch, switches_of
from drlnb.runtime.children.told import told
from drlnb.runtime.ipc.pickled_work import read_program
from drlnb.runtime.ipc.tensors import as_bytes, from_bytes

__all__ = ["FitLearner"]

#: Keys of torch's random numbers among the saved tensors, and what is before the names of the others.
_RANDOM, _RANDOM_CUDA, _MODULE = "random", "random_cuda", "module/"
#: The same of the random numbers of Python and numpy, and of buffers that are no part of the module's state.
_RANDOM_PYTHON, _RANDOM_NUMPY, _BUFFER = "random_python", "random_numpy", "buffer/"
#: The part of a step that is all of it.
_ALL = slice(None)


class FitLearner:
    """Holds a program's module and optimiser, and makes their steps, one round at a time.

    Parameters
    ----------
    spec
        The task.
    device
        A torch device.
    data_sets
        Those of this process; None: nobody else has any.
    task
        Its name among them.

    Raises
    ------
    ConfigError
        If there is no such program, or its files cannot be read here.
    RuntimeError
        If it raises, or returns something else.
    """

    #: No actor needs to know where a parameter lies.
    layout = None

    def __init__(
        self, spec: FitWork, *, device: str = "cpu", data_sets: DataSets | None = None, task: str = ""
    ) -> None:
        self.spec, self.device = spec, torch.device(device)
        #: Is put around each gradient.
        self.around: Around = plainly
        self.n_steps = self._until = 0
        #: Losses of the round's steps so far.
        self._losses: list[Tensor] = []
        #: What the program set in libraries for itself (the default dtype, say); others on this slot do not have it.
        self._ambient: list[object] | None = None
        #: What :meth:`state` returned, while nothing has changed since.
        self._saved: tuple[Facts, np.ndarray] | None = None
        program = named(spec.program) if spec.data is None else partial(self._program, data_sets or DataSets(), task)
        with self.own():
            seed_all(spec.seed)
            parts = told("program()", program)
            if not (isinstance(parts, tuple) and len(parts) in {4, 5} and isinstance(parts[0], torch.nn.Module)):
                raise RuntimeError(f"program() must return (module, optimizer, loss, batches), got {quoted(parts)}")
            self.module, self.optimizer, self.loss, self._batches, *evaluate = parts
            self._evaluate = evaluate[0] if evaluate else None
            #: What the parameters add up to as the program made them, by name; where there is one learner nobody asks.
            self.as_made = sums_of(self.module) if spec.n_learners > 1 else {}
            self.module.to(self.device)
            if isinstance(self.loss, torch.nn.Module):
                self.loss.to(self.device)

    def _program(self, data_sets: DataSets, task: str) -> tuple[object, ...]:
        """Return what the files of the run directory hold."""
        spec = self.spec
        held, dataset = data_sets.of(task, Path(spec.data or ""), spec.seed)
        seed_all(spec.seed)  # whether the data set was made now or is here already
        module, loss, optimizer, kwargs, evaluate = read_program(Path(spec.program), held)
        made = optimizer(module.parameters(), **kwargs)

        def batches(step: int, part: slice = _ALL) -> object:
            return batch_of(dataset, indices_of(spec, step)[part])

        return module, made, loss, batches, evaluate

    @contextlib.contextmanager
    def own(self, *, keep: bool = True) -> Iterator[None]:
        """Set random numbers and libraries as this task left them, and afterwards as they were for others.

        Parameters
        ----------
        keep
            Whether what is drawn and set meanwhile counts for the task from then on.
        """
        others = ambient()
        if self._ambient is not None:
            put_back(self._ambient)
        try:
            yield
        finally:
            if keep:
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
        self._losses.clear()

    def stage(self, worker: int, fragment: Fragment) -> float:
        """Stage nothing: the data is here."""
        del worker, fragment
        return 0.0

    def finish(self, on_minibatch: Notify | None = None) -> dict[str, float]:
        """Make the round's steps, those that are left if some were made of shares.

        Parameters
        ----------
        on_minibatch
            Called after each step with its number (from 1) and how many there are.  If it raises, these steps are
            undone and the exception passes.

        Returns
        -------
        dict
            ``train/loss``, the mean over the round, ``train/n_updates``, the steps since the task's first,
            ``train/learning_rate`` of the first group of parameters, and at the end of an epoch ``eval/...``.

        Raises
        ------
        NonFinite
            If the loss or a parameter is NaN or infinite; nothing is changed.
        RuntimeError
            If a function of the program raises, or returns what it must not; nothing is changed.
        """
        n_steps, losses = self._until - self.n_steps, self._losses
        before, first = (self._saved or self.state()) if n_steps else None, self.n_steps - len(losses)
        notify = on_minibatch or (lambda number, n_steps: None)
        self._saved = None
        try:
            with self.own(), same_kernels(self.device, self.spec.deterministic):
                try:
                    for number in range(1, n_steps + 1):
                        losses.append(self._step(self.n_steps))
                        self.n_steps += 1
                        notify(number, n_steps)
                except RuntimeError:
                    self._mean(losses, first)  # what is not finite may be why
                    raise
                metrics = {"train/loss": self._mean(losses, first), "train/n_updates": self.n_steps}
                if not all(bool(p.isfinite().all()) for p in self.module.parameters() if p.requires_grad):
                    raise NonFinite(f"parameters are not finite after {self.where(self.n_steps - 1)}; update refused")
                metrics |= self._evaluated(partial(notify, n_steps, n_steps))
        except BaseException:
            if before is not None:
                self.restore(*before)
            raise
        rate = self.optimizer.param_groups[0].get("lr")
        return metrics if rate is None else metrics | {"train/learning_rate": float(rate)}

    def _mean(self, losses: list[Tensor], first: int) -> float:
        """Return the mean of a round's losses; raise NonFinite if one is not finite, `first` being the first's step."""
        if not losses:
            return 0.0
        values = torch.stack([loss.double() for loss in losses])
        if len(bad := torch.nonzero(~values.isfinite())):
            raise NonFinite(f"loss is {values[bad[0, 0]]} at {self.where(first + int(bad[0, 0]))}; update refused")
        return float(values.mean())

    def _evaluated(self, alive: Callable[[], None]) -> dict[str, float]:
        """Return what the module's evaluation says if this is the end of an epoch."""
        epoch, rest = divmod(self.n_steps, self.spec.epoch_steps or self.n_steps + 1)
        if self._evaluate is None or rest:
            return {}
        return evaluated(f"evaluate() after epoch {epoch}", self.module, self._evaluate, alive)

    def where(self, step: int, part: slice = _ALL) -> str:
        """Return in words which step this is, and which samples of its epoch's order it, or a part of it, has."""
        if not (n_steps := self.spec.epoch_steps):
            return f"step {step}"
        samples = self._samples(step, part)
        return f"step {step} (epoch {step // n_steps + 1}, samples {samples[0]} to {samples[-1]} of its order)"

    def _samples(self, step: int, part: slice) -> range:
        """Return where in its epoch's order the samples of a step, or of a part of it, are."""
        first = step % self.spec.epoch_steps * self.spec.batch_size
        return range(first, min(first + self.spec.batch_size, self.spec.n_samples))[part]

    def _step(self, step: int) -> Tensor:
        """Make a step; return its loss."""
        loss, _ = self.gradient(step)
        self.update(step)
        return loss

    def gradient(self, step: int, part: slice = _ALL) -> tuple[Tensor, object]:
        """Compute the gradient of a step, or of a part of its samples, in place of what there was.

        Returns
        -------
        tuple
            The loss, and what it was divided by if it says so: else the samples.

        Raises
        ------
        RuntimeError
            If a function of the program raises, or returns what it must not.
        """
        where = self.where(step, part)
        what, *more = (f"batches({step})",) if self.spec.data is None else (f"the data set at {where}", part)
        batch = told(what, self._batches, step, *more)
        if not (isinstance(batch, tuple | list) and len(batch) == 2):
            raise RuntimeError(f"{where}: a batch must be (inputs, targets), got {quoted(batch)}")
        inputs, targets = on_device(batch[0], self.device), on_device(batch[1], self.device)
        n_samples = len(self._samples(step, part)) if self.spec.data is not None else n_samples_of(inputs)

        def compute() -> tuple[Tensor, object]:
            self.module.zero_grad()  # that of parameters which the optimiser does not have counts in the norm
            loss = self.loss(self.module(inputs), targets)
            loss, denominator = loss if isinstance(loss, tuple) and len(loss) == 2 else (loss, n_samples)
            if not (isinstance(loss, Tensor) and loss.ndim == 0):
                shape = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else quoted(loss)
                raise TypeError(f"loss must return a tensor without axes, such as a mean, got {shape}")
            loss.backward()
            return loss.detach(), denominator

        loss: tuple[Tensor, object] = told(where, self.around, n_samples, compute)
        return loss

    def update(self, step: int) -> None:
        """Make the optimiser's step of the gradient that is there; raise RuntimeError if that raises."""
        if self.spec.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.spec.max_grad_norm)
        told(f"the optimizer at {self.where(step)}", self.optimizer.step)

    def step_with(self, loss: float) -> None:
        """Make a step of the gradient that is there, and that has such a loss.

        Raises
        ------
        OutOfMemoryError
            If there is not enough for the round's first step; nothing is changed.
        RuntimeError
            If the optimiser raises, or finds too little memory later.
        """
        before = None if self._losses else self._saved or self.state()
        self._saved = None
        try:
            with self.own(), same_kernels(self.device, self.spec.deterministic):
                self.update(self.n_steps)
        except torch.OutOfMemoryError as error:
            if before is None:
                raise RuntimeError(f"the optimizer at {self.where(self.n_steps)} ran out of memory") from error
            self.restore(*before)
            raise
        self.n_steps += 1
        self._losses.append(torch.tensor(loss, dtype=torch.float64, device=self.device))

    def changed(self) -> None:
        """Note that parameters were changed from outside."""
        self._saved = None

    # ------------------------------------------------------------------------------------- what goes out and in
    def published(self) -> np.ndarray:
        """Return the module's state as the bytes of a safetensors file."""
        return as_bytes(self.module.state_dict())

    def state(self) -> tuple[Facts, np.ndarray]:
        """Return plain data and the bytes of a safetensors file: everything needed to go on exactly.

        Raises
        ------
        RuntimeError
            If the optimiser keeps something that cannot be saved.
        """
        of_optimizer, numbers, groups = taken_apart(self.optimizer)
        with self.own():
            tensors = {_RANDOM: torch.get_rng_state()}
            if self.device.type == "cuda":
                tensors[_RANDOM_CUDA] = torch.cuda.get_rng_state()
            _, of_python, *python = random.getstate()
            _, of_numpy, *of_others = map(np.asarray, np.random.get_state())  # noqa: NPY002 - users draw from it
        tensors |= {_RANDOM_PYTHON: torch.tensor(of_python), _RANDOM_NUMPY: torch.tensor(of_numpy.astype(np.int64))}
        tensors |= {_MODULE + name: tensor for name, tensor in self.module.state_dict().items()}
        tensors |= {_BUFFER + name: buffer for name, buffer in self._passing().items()}
        tensors |= of_optimizer
        beside = [*python, *(value.item() for value in of_others)]
        facts = {"n_steps": self.n_steps, "groups": groups, "numbers": numbers, "random": beside}
        facts |= {"switches": switches_of(self.module)}
        self._saved = facts, as_bytes(tensors)
        return self._saved

    def _passing(self) -> dict[str, Tensor]:
        """Return the buffers that are no part of the module's state, and those of the loss, by name."""
        own = {name: buffer for name, buffer in self.module.named_buffers() if name not in self.module.state_dict()}
        of_loss = self.loss.named_buffers() if isinstance(self.loss, torch.nn.Module) else ()
        return own | {f"loss/{name}": buffer for name, buffer in of_loss}

    def restore(self, meta: Facts, buffer: np.ndarray) -> None:
        """Go on from :meth:`state`.

        Raises
        ------
        RuntimeError
            If it was that of another module, or of another kind of optimiser.
        """
        tensors = from_bytes(buffer.tobytes())
        names = ("n_steps", "groups", "numbers", "switches", "random")
        n_steps, groups, numbers, switches, (normal, *beside) = itemgetter(*names)(meta)
        module = {name.removeprefix(_MODULE): each for name, each in tensors.items() if name.startswith(_MODULE)}
        what = "what was saved of this task does not fit its program"
        told(what, self.module.load_state_dict, module)
        told(what, self.optimizer.load_state_dict, put_together(tensors, numbers, groups))
        for name, passing in self._passing().items():
            passing.copy_(tensors[_BUFFER + name])
        switch(self.module, switches)
        with self.own():
            torch.set_rng_state(tensors[_RANDOM])
            random.setstate((random.getstate()[0], tuple(tensors[_RANDOM_PYTHON].tolist()), normal))
            of_numpy = tensors[_RANDOM_NUMPY].numpy().astype(np.uint32)
            np.random.set_state(("MT19937", of_numpy, *beside))  # noqa: NPY002
            if _RANDOM_CUDA in tensors and self.device.type == "cuda":
                torch.cuda.set_rng_state(tensors[_RANDOM_CUDA])
        self.n_steps, self._saved = int(n_steps), None
