"""Decide which submodules may be made again, by trying them out, and have those of a plan made again.

A block is offered to planners once a trial has shown that its forward pass, made twice, changes nothing and saves the
same bits for the backward pass; the operations of that pass stay those of the first time, so gradients are the same,
too.  A trial holds for one *manner*: the same simple attributes, such as ``training``.  In another one it is repeated.
"""

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from drlnb.planning.swapping.profile import SwapProfile
from drlnb.runtime.swapping.attribution import Attribution
from drlnb.runtime.swapping.blocks.again import Then, before_backward, checkpointed, statistics_kept
from drlnb.runtime.swapping.blocks.asking import Forward, can_be_asked, instead
from drlnb.runtime.swapping.blocks.given import Former, whole
from drlnb.runtime.swapping.blocks.state import Unknowable, bits, draws, everything, keeps_statistics, manner
from drlnb.runtime.swapping.memory import storages_of
from drlnb.runtime.swapping.report import warn
from drlnb.runtime.swapping.squeeze import tensors_in
from drlnb.runtime.swapping.tape import Tape
from drlnb.runtime.swapping.torch_private import graph_task, in_transform, storage_number, submodules

__all__ = ["Blocks"]

#: After so many trials a submodule is left alone: it fails, or works in another manner each time.
_TRIALS = 8
#: A block is worth to be made again if that many storages go.
_LEAST_SAVED = 2
_Arguments = tuple[tuple[object, ...], dict[str, object]]


class Blocks:
    """The submodules of one module, and what is known of them.

    Parameters
    ----------
    module
        The model.
    tape, attribution
        What its steps are made with.
    """

    def __init__(self, module: nn.Module, tape: Tape, attribution: Attribution) -> None:
        self._module, self._tape, self._attribution = module, tape, attribution
        #: Path -> manners in which a trial has passed; and why the last trial has not.
        self._passed: defaultdict[str, set[tuple[object, ...]]] = defaultdict(set)
        self._failed: dict[str, str] = {}
        self._n_trials: defaultdict[str, int] = defaultdict(int)
        self._small: defaultdict[str, set[tuple[object, ...]]] = defaultdict(set)  # manners in which too little goes
        self._warned: set[str] = set()
        self._saved: list[object] = []  # what the outermost trial's forward pass has saved so far, by its bits
        self._inside: list[Former] = []  # the same, as tensors
        self._own: set[int] = set()  # storages of parameters and buffers
        self._statistics: set[int] = set()  # those of batch statistics, which are saved and not read; and of copies
        self._copies: set[int] = set()
        self._in_trial = False

    def exact(self, profile: SwapProfile) -> SwapProfile:
        """Return a profile with those blocks alone that a trial has shown to be exact."""
        chosen = [each for each in profile.blocks if self._passed[each.path] and each.path not in self._failed]
        return replace(profile, blocks=tuple(chosen))

    @contextmanager
    def open(self, plan: Sequence[str], *, tries: bool) -> Iterator[None]:
        """Make the blocks of a plan again, in the step that runs while the context is open.

        A block of which no trial knows is tried out in this step.  One that fails is left as it is, which is said once.

        Parameters
        ----------
        plan
            Paths of submodules; none lies within another.
        tries
            Whether all submodules are tried out.

        Raises
        ------
        ValueError
            If there is no such submodule.
        """
        if not plan and not tries:
            yield
            return
        known = {path: each for path, each in self._module.named_modules() if path}
        if missing := [path for path in plan if path not in known]:
            raise ValueError(f"block {missing[0]!r} is no submodule")
        with self._tape.meter.aside():
            new = {path for path, each in known.items() if tries and not self._is_settled(path, manner(each))}
        chosen = {path: each for path, each in known.items() if path in {*new, *plan} and can_be_asked(each)}
        self._failed |= {path: "its forward pass is not its class's" for path in plan if path not in chosen}
        self._own, self._saved = set(storages_of(self._module)[0]), []
        calls = {each: functools.partial(self._call, path, each, path in plan) for path, each in chosen.items()}
        try:
            with instead(calls):
                yield
        finally:
            self._tape.heard, self._saved, self._statistics = None, [], set()
            for path in plan:
                if path in self._failed and path not in self._warned:
                    self._warned.add(path)
                    warn(f"block {path!r} is not made again, what it saves stays: {self._failed[path]}")

    def n_left_alone(self, plan: Sequence[str]) -> int:
        """Return how many blocks of a plan are not made again."""
        return sum(path in self._failed for path in plan)

    def _call(
        self, path: str, module: nn.Module, planned: bool, forward: Forward, args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:  # fmt: skip
        if self._in_trial or not torch.is_grad_enabled() or in_transform():
            return forward(*args, **kwargs)
        how = manner(module)
        if how in self._passed[path] and path not in self._failed:
            if planned:
                return checkpointed(path, module, forward, self._tape, args, kwargs)
        elif not self._is_settled(path, how) and graph_task() == -1:
            return self._tried(path, module, forward, (args, kwargs))
        return forward(*args, **kwargs)

    def _is_settled(self, path: str, how: tuple[object, ...]) -> bool:
        """Return whether a trial would say nothing new."""
        passed = how in self._passed[path] and path not in self._failed
        return passed or how in self._small[path] or self._n_trials[path] >= _TRIALS

    # -- trials ------------------------------------------------------------------------------------------------------

    def _tried(self, path: str, module: nn.Module, forward: Forward, given: _Arguments) -> object:
        """Make a forward pass, and then once more what can be seen of it."""
        meter, how = self._tape.meter, manner(module)
        with meter.aside():
            before, random = _state(module, given), _Random(meter.device)
            self._statistics |= _statistics(module)
        first, n_inside, n_saved = len(self._saved), len(self._inside), self._tape.n_saved
        outer, self._tape.heard = self._tape.heard, self._hear
        try:
            out = forward(*given[0], **given[1])
        finally:
            self._tape.heard = outer
        saved = self._saved[first:]
        inside = self._inside[n_inside:]
        if outer is None:
            self._saved, self._inside = [], []
        if self._tape.n_saved - n_saved < _LEAST_SAVED:
            self._small[path].add(how)
            return out
        self._n_trials[path] += 1
        self._failed.pop(path, None)
        with meter.aside():
            problem = before if isinstance(before, str) else _changed(before, module, given)
            if problem or (problem := self._differing(module, forward, given, random, saved, out)):
                self._failed[path] = problem
            else:
                self._passed[path].add(how)
                self._watch(path, Then(path, module), [*self._formerly(given), *inside], out)
        return out

    def _hear(self, tensor: torch.Tensor) -> None:
        with self._tape.meter.aside():
            self._saved.append(self._said(tensor))
            self._inside += self._formerly(tensor)

    def _formerly(self, value: object) -> list[Former]:
        return [
            Former(each, self._tape) for each in whole(value) if storage_number(each.untyped_storage()) not in self._own
        ]

    def _said(self, tensor: torch.Tensor) -> object:
        try:
            number = storage_number(tensor.untyped_storage()) if tensor.layout is torch.strided else 0
            if number in self._statistics or number in self._copies:
                return tensor.shape
            return (number, tensor._version, tensor.shape) if number in self._own else bits(tensor)
        except (Unknowable, RuntimeError, NotImplementedError):
            return object()  # equal to nothing

    def _differing(
        self,
        module: nn.Module,
        forward: Forward,
        given: _Arguments,
        random: "_Random",
        saved: list[object],
        out: object,
    ) -> str:
        """Make a forward pass again, and return what is not the same; empty: all is."""
        before, again = _state(module, given), list[object]()
        self._in_trial = True
        try:
            with ExitStack() as stack:
                stack.enter_context(self._attribution.aside())
                stack.enter_context(random.again())
                stack.enter_context(statistics_kept(module))
                self._copies = _statistics(module)
                stack.enter_context(saved_tensors_hooks(lambda tensor: again.append(self._said(tensor)), _unread))
                other = forward(*given[0], **given[1])
        except Exception as problem:  # noqa: BLE001 - the user's code, which nobody but us has run a second time
            return f"made again, it raises {type(problem).__name__}: {problem}"
        finally:
            self._in_trial, self._copies = False, set()  # others get these numbers
        if again != saved:
            return "made again, it saves other tensors"
        if [*map(self._said, tensors_in(out))] != [*map(self._said, tensors_in(other))]:
            return "made again, it returns other numbers"
        return before if isinstance(before, str) else _changed(before, module, given)

    def _watch(self, path: str, then: Then, tensors: Sequence[Former], out: object) -> None:
        """See whether something is written between the forward and the backward pass that has to be there again."""

        def look(_: object) -> None:
            with self._tape.meter.aside():
                problem = ""
                if then.changed():
                    problem = "its parameters, buffers or surroundings change before its backward pass"
                elif not all(each.is_unwritten for each in tensors):
                    problem = "what it is called with, or saves, is written before its backward pass"
            if problem:
                self._failed[path], self._n_trials[path] = problem, _TRIALS

        before_backward(out, look)


def _unread(_: object) -> torch.Tensor:
    raise RuntimeError("its forward pass computes gradients itself")


def _statistics(module: nn.Module) -> set[int]:
    norms = [each for each in submodules(module) if keeps_statistics(each)]
    buffers = [buffer for norm in norms for buffer in norm._buffers.values() if buffer is not None]
    return {storage_number(buffer.untyped_storage()) for buffer in buffers}


_State = tuple[bytes, tuple[object, ...]]


def _state(module: nn.Module, given: _Arguments) -> _State | str:
    """Return all that a forward pass may change; a text: why nobody can say that."""
    try:
        return everything(module, given), draws()
    except Unknowable as problem:
        return f"nobody can say whether its forward pass changes what it refers to: {problem}"


def _changed(before: _State, module: nn.Module, given: _Arguments) -> str:
    after = _state(module, given)
    if isinstance(after, str):
        return after
    if after[1] != before[1]:
        return "its forward pass draws numbers of Python or numpy"
    return "its forward pass changes what it refers to" if after[0] != before[0] else ""


class _Random:
    """Torch's random numbers before a forward pass: those of the CPU and of the device that a model is on.

    Not of a submodule's own device: dropout has no parameter that would tell.
    """

    def __init__(self, device: torch.device | None) -> None:
        self._devices = [device] if device is not None and device.type == "cuda" else []
        self._states = [torch.cuda.get_rng_state(each) for each in self._devices]
        self._own = torch.get_rng_state()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same ones once more, and afterwards those that come next anyway."""
        with torch.random.fork_rng(self._devices):
            torch.set_rng_state(self._own)
            for device, state in zip(self._devices, self._states, strict=True):
                torch.cuda.set_rng_state(state, device)
            yield
