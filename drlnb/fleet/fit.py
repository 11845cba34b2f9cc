"""Train a PyTorch module on a data set, as a run like any other."""

import contextlib
import hashlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from drlnb.fleet.launch import Files
from drlnb.fleet.plain import COUNT, Plain, by_name, first_line
from drlnb.fleet.tasks.hidden_state import kept_outside
from drlnb.fleet.tasks.planners import chosen, gathered, without_effect
from drlnb.fleet.tasks.run_spec import RunSpec, default_out, run_spec
from drlnb.fleet.tasks.shared_steps import MOST_TRIED, refuse_unequal
from drlnb.fleet.tasks.task import NAME
from drlnb.fleet.training import Training
from drlnb.planning.settings import BUDGETS
from drlnb.records.errors import ConfigError
from drlnb.records.settings import FLAG, POSITIVE, fitting, is_whole, optional, quoted
from drlnb.records.spec import LIMITS, FitWork
from drlnb.records.units import read_bytes
from drlnb.rl.pickled import display_name
from drlnb.runtime.files.run_directory import FIT
from drlnb.runtime.ipc.pickled_work import copies, pack_work

if TYPE_CHECKING:
    import torch

    from drlnb.runtime.children.data_sets import Indexed

__all__ = ["fit"]

_NAMED = fitting(
    "1 to 80 letters, digits, '-', '_' or '.'", lambda name: isinstance(name, str) and bool(NAME.fullmatch(name))
)
_NORM = optional(POSITIVE)


class _Fleet(Protocol):
    """What starts runs."""

    def begin(
        self, spec: RunSpec, out: str | Path, on_existing: str, start: None = None, files: Files | None = None
    ) -> Training: ...


def fit(
    self: _Fleet,
    module: "torch.nn.Module",
    dataset: object,
    loss: Callable[..., object],
    optimizer: Callable[..., object],
    *,
    optimizer_kwargs: Plain | None = None,
    batch_size: int,
    n_epochs: int,
    evaluate: Callable[..., object] | None = None,
    max_grad_norm: float | None = None,
    n_learners: int = 1,
    exact: bool = False,
    seed: int = 0,
    memory_budget: str | int | None = None,
    planners: Mapping[str, object] | str | None = None,
    settings: Plain | None = None,
    name: str = "fit",
    out: str | Path | None = None,
    on_existing: str = "error",
) -> Training:
    """Start to train a PyTorch module on a data set; return as soon as the run is registered.

    Parameters are those of the plain loop in docs/batching.md, bit by bit on CPUs.  All that is given is copied when it
    is called: the module stays as it is, :meth:`~drlnb.fleet.training.Training.load` returns the trained one.

    Parameters
    ----------
    module
        Any module, in training mode.
    dataset
        With ``__len__`` and ``__getitem__``, of samples ``(input, target)``; or a function or class without arguments
        that makes one, which is called here for its length, and in each process that trains.
    loss
        ``(output, target) -> `` tensor without axes, or ``(loss, denominator)``: beside it what it was divided by,
        which counts with several learners where that is not the number of samples.
    optimizer
        Class, or function, that makes an optimiser of ``module.parameters()`` and `optimizer_kwargs`.
    optimizer_kwargs
        Its arguments.
    batch_size
        Samples of a step; the last step of an epoch has what is left.
    n_epochs
        Times that the data set is gone through, each in an order of its own.
    evaluate
        ``module -> {name: number}``, called after each epoch, in evaluation mode and without gradients, with the module
        on its device: rows ``eval/NAME`` of the metrics.
    max_grad_norm
        Norm to which each step's gradient is clipped, as by ``torch.nn.utils.clip_grad_norm_``; None: it is not.
    n_learners
        Slots that compute each step's gradient side by side, in shares that follow their speeds; with fewer where no
        more are up.  Parameters are then those of one learner but for the rounding of sums and for random numbers.
    exact
        Refuse what changes from step to step and is not saved; and with several learners a module for which that is not
        so, such as one with dropout or batch normalisation.
    seed
        Of the order of samples and of the random numbers of torch, numpy and Python.
    memory_budget
        Bytes that a step may use on its device, such as ``8GiB``; None: any number, and nothing is swapped.
    planners, settings
        As of :meth:`drlnb.fleet.fleet.Fleet.train`; those of collectors are refused, and those of several learners
        where there is one.  By ``planners="patent"`` four or more learners leave samples out: a step waits for three
        quarters of them, unless `exact`, or ``batching.quorum`` says otherwise.
    name
        Of the task.
    out, on_existing
        As of :meth:`drlnb.fleet.fleet.Fleet.train`.  The run directory holds the module and the data set, too.

    Returns
    -------
    Training
        A run with one task.

    Raises
    ------
    ConfigError
        If something of that is wrong, or cannot travel to another process; nothing was made then.
    RunLocked, SpecMismatch
        As of :meth:`drlnb.fleet.fleet.Fleet.train`.
    """
    several = is_whole(n_learners, 2)
    problems = [
        *_wrong_parts(module, loss, optimizer, evaluate),
        COUNT.problem("batch_size", batch_size),
        COUNT.problem("n_epochs", n_epochs),
        LIMITS["n_learners"].problem("n_learners", n_learners),
        FLAG.problem("exact", exact),
        LIMITS["seed"].problem("seed", seed),
        _NORM.problem("max_grad_norm", max_grad_norm),
        BUDGETS.problem("memory_budget", memory_budget),
        _NAMED.problem("name", name),
        *without_effect(planners if isinstance(planners, Mapping) else (), several=several),
        *without_effect(settings if isinstance(settings, Mapping) else (), several=several),
    ]
    if found := [problem for problem in problems if problem]:
        raise ConfigError(found)
    quorum = settings.get("batching.quorum", 1.0) if isinstance(settings, Mapping) else 1.0
    if exact and quorum != 1.0:
        raise ConfigError(f"exact=True needs every sample of a step: batching.quorum must be 1.0 (all), got {quorum}")
    if batch_size < n_learners:
        raise ConfigError(f"batch_size must be >= n_learners = {n_learners}, got {batch_size}: samples are not divided")
    kwargs = dict(by_name("optimizer_kwargs", optimizer_kwargs))
    rules = chosen(planners)
    if not exact:
        settings = gathered(rules, n_learners, by_name("settings", settings))
    others = {
        "loss": _divided(loss) if several else loss,
        "optimizer": optimizer,
        "optimizer_kwargs": kwargs,
        "evaluate": evaluate,
    }
    _refuse_kind(dataset)
    program, data = pack_work(module, dataset, others)
    with _left_alone():
        made = _made(dataset, seed, batch_size)
        _refuse_unsaved(partial(copies, program, dataset, 2))
        _refuse_optimizer(partial(copies, program, dataset, 4))
        budget_bytes = _budget(module, memory_budget)
    n_samples = len(made)
    files = {
        f"{kind}-{hashlib.sha256(content).hexdigest()[:32]}.pickle": content
        for kind, content in (("program", program), ("data", data))
    }
    n_steps = n_epochs * -(-n_samples // batch_size)
    if problem := LIMITS["total_timesteps"].problem("steps over all epochs", n_steps):
        raise ConfigError(problem)
    of_program, of_data = (f"{FIT}/{file}" for file in files)
    work = FitWork(
        name=name,
        program=of_program,
        data=of_data,
        n_samples=n_samples,
        batch_size=batch_size,
        optimizer=f"{display_name(optimizer)}({', '.join(f'{key}={quoted(value)}' for key, value in kwargs.items())})",
        evaluates=evaluate is not None,
        max_grad_norm=None if max_grad_norm is None else float(max_grad_norm),
        total_timesteps=n_steps,
        seed=seed,
        memory_budget_bytes=budget_bytes,
        n_learners=n_learners,
    )
    spec = run_spec((work,), rules, settings=settings)
    _refuse_unequal(module, partial(copies, program, dataset, 4), made, work, exact=exact)
    return self.begin(spec, out or default_out(), on_existing, files=files)


def _wrong_parts(module: object, loss: object, optimizer: object, evaluate: object) -> Iterator[str]:
    """Yield what is wrong with the parts of a program."""
    import torch

    if not isinstance(module, torch.nn.Module):
        yield f"module must be a torch.nn.Module, got {quoted(module)}"
    elif not module.training:
        yield "module is in evaluation mode, in which nothing would be dropped out: call module.train() before"
    elif any(torch.nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
        yield "module has lazy parameters, whose shapes nobody knows: put one batch through it before"
    elif hooked := [name for name, each in module.named_parameters() if _hooks(each)]:
        yield f"parameter {hooked[0]} has a hook, which is not copied with module: register it where optimizer is made"
    if isinstance(optimizer, torch.optim.Optimizer) or not callable(optimizer):
        wanted = "a class such as torch.optim.Adam, or a function that makes an optimizer"
        yield f"optimizer must be {wanted}, got {quoted(optimizer)}"
    if not callable(loss):
        yield f"loss must be a function of (output, target), got {quoted(loss)}"
    if isinstance(loss, torch.nn.Module) and isinstance(module, torch.nn.Module):
        ours = {id(parameter) for parameter in module.parameters()}
        if any(id(parameter) not in ours for parameter in loss.parameters()):
            yield "loss has parameters of its own, which no optimizer gets: make it a part of the module"
    if evaluate is not None and not callable(evaluate):
        yield f"evaluate must be a function of the module, got {quoted(evaluate)}"


def _hooks(parameter: "torch.nn.Parameter") -> bool:
    """Return whether something is called with a parameter's gradient."""
    return bool(parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None))


@contextlib.contextmanager
def _left_alone() -> Iterator[None]:
    """Leave random numbers, and what libraries keep once per process, as they are."""
    from drlnb.runtime.children.ambient import ambient, put_back

    before = ambient()
    try:
        yield
    finally:
        put_back(before)


def _not_compiled() -> contextlib.AbstractContextManager[object]:
    """Have modules of ``torch.compile`` compute as they are: to compile one for a trial takes long."""
    import torch

    # Without dynamo, whose import takes seconds, there are none.
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()


def _refuse_kind(dataset: object) -> None:
    """Raise ConfigError if samples of a data set cannot be asked for by their number."""
    from torch.utils.data import DataLoader, IterableDataset

    if isinstance(dataset, DataLoader):
        raise ConfigError(
            "dataset must be what the DataLoader reads (its dataset): batches are made where they are needed"
        )
    indexed = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if isinstance(dataset, IterableDataset) or not (indexed or callable(dataset)):
        raise ConfigError(
            f"dataset must have __len__ and __getitem__, or be a function that makes such a one, got {quoted(dataset)}"
        )


def _made(dataset: object, seed: int, batch_size: int) -> "Indexed":
    """Return a data set, or what it makes; raise ConfigError if it cannot be trained on."""
    from drlnb.runtime.children.data_sets import batch_of, made_of

    try:
        made = made_of(dataset, seed)
        _refuse_kind(made)
        n_samples = len(made)
        batch = batch_of(made, [0]) if n_samples else ()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"dataset cannot be read: {type(error).__name__}: {first_line(error)}") from error
    if n_samples < batch_size:
        raise ConfigError(f"dataset has {n_samples:,} samples, less than batch_size = {batch_size:,}")
    if not (isinstance(batch, list | tuple) and len(batch) == 2):
        raise ConfigError(f"each sample of dataset must be a pair (input, target), got {quoted(batch)}")
    return made


def _refuse_optimizer(copies: Callable[[], list[Any]]) -> None:
    """Raise ConfigError if what is called an optimiser makes none, of a copy of the module: it may change that."""
    import torch

    from drlnb.runtime.children.optimizer_state import taken_apart

    try:
        module, _, optimizer, kwargs = copies()
        made = optimizer(module.parameters(), **kwargs)
    except Exception as error:
        raise ConfigError(f"optimizer cannot be made: {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(made, torch.optim.Optimizer):
        raise ConfigError(f"optimizer must make a torch.optim.Optimizer, it made {quoted(made)}")
    try:
        taken_apart(made)
    except RuntimeError as error:
        raise ConfigError(str(error)) from error
    if hasattr(made.step, "_wrapped_by_lr_sched"):
        raise ConfigError(
            "optimizer has a scheduler of torch.optim.lr_scheduler, which is not saved with the run: keep the step in "
            "its groups, as docs/batching.md shows (Learning rates that change)"
        )
    if any(
        p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}
        for p in inspect.signature(made.step).parameters.values()
    ):
        raise ConfigError(
            f"optimizer {type(made).__name__} computes losses itself (its step has a closure): take another"
        )


def _refuse_unsaved(copies: Callable[[], list[Any]]) -> None:
    """Raise ConfigError if module or loss cannot be rebuilt, or what they hold not be saved and read back."""
    import torch

    from drlnb.runtime.ipc.tensors import as_bytes, from_bytes

    try:
        module, loss = copies()
    except Exception as error:
        raise ConfigError(f"module or loss cannot be rebuilt: {type(error).__name__}: {first_line(error)}") from error
    held = {f"{name} of module": each for name, each in {**module.state_dict(), **dict(module.named_buffers())}.items()}
    if isinstance(loss, torch.nn.Module):
        held |= {f"{name} of loss": each for name, each in loss.named_buffers()}
    for name, value in held.items():
        try:
            with torch.no_grad():
                value.copy_(from_bytes(as_bytes({name: value}).tobytes())[name])
        except Exception as error:
            kind = f"{value.dtype}, {value.layout}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise ConfigError(
                f"{name} cannot be saved ({kind}): let it be a dense tensor of its own "
                f"({type(error).__name__}: {first_line(error)})"
            ) from error


def _budget(module: "torch.nn.Module", memory_budget: str | int | None) -> int | None:
    """Return a budget in bytes; raise ConfigError if the module alone takes more."""
    from drlnb.runtime.swapping.memory import budget_problem

    if memory_budget is None:
        return None
    if problem := budget_problem(module, n_bytes := read_bytes(memory_budget)):
        raise ConfigError(problem)
    return n_bytes


def _divided(loss: Callable[..., object]) -> Callable[..., object]:
    from drlnb.rl.objectives.denominators import divided

    return divided(loss)


def _refuse_unequal(
    module: "torch.nn.Module", copies: Callable[[], list[Any]], dataset: "Indexed", work: FitWork, *, exact: bool
) -> None:
    """Warn of what would not be as in a plain loop, or raise ConfigError if that may not be."""
    from drlnb.rl.networks.same_bits import seed_all
    from drlnb.runtime.children.data_sets import indices_of

    def read(n_samples: int) -> Sequence[object]:
        indices = indices_of(work, 0)[:n_samples]
        at_once = getattr(dataset, "__getitems__", None)
        return list(at_once(indices)) if at_once else [dataset[index] for index in indices]

    with _left_alone(), _not_compiled():
        said = [kept_outside(copies, read, partial(seed_all, work.seed))]
        if exact and said[0]:
            raise ConfigError(f"exact=True: {said[0]}")
        if work.n_learners > 1:
            said.append(refuse_unequal(module, copies, partial(read, MOST_TRIED), exact=exact))
    for text in filter(None, said):
        warnings.warn(text, RuntimeWarning, stacklevel=3)
