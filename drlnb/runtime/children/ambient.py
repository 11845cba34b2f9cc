"""Read what libraries keep once per process, and put it back after code that is not ours."""

import contextlib
import os
import random
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import backends

__all__ = ["ambient", "put_back"]

#: What reads something that is kept once per process, and what sets it again.
_Kept = tuple[Callable[[], Any], Callable[[Any], object]]
#: Flags of ``torch.backends``; those of precision behind what sets several of them at once.
_FLAGS = (
    *("cudnn.enabled", "cudnn.benchmark", "cudnn.benchmark_limit", "cudnn.deterministic", "cudnn.allow_tf32"),
    *("cuda.matmul.allow_fp16_reduced_precision_reduction", "cuda.matmul.allow_bf16_reduced_precision_reduction"),
    *("fp32_precision", "cuda.matmul.fp32_precision"),
    *(f"{name}.fp32_precision" for name in ("cudnn", "cudnn.conv", "cudnn.rnn")),
    *(f"{name}.fp32_precision" for name in ("mkldnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")),
)


def ambient() -> list[object]:
    """Return what libraries keep once per process, as it is now."""
    return [read() for read, _ in _KEPT]


def put_back(values: list[object]) -> None:
    """Set what :func:`ambient` has read."""
    for (_, write), value in zip(_KEPT, values, strict=True):
        write(value)


def _changed(read: Callable[[], Any], write: Callable[[Any], object]) -> _Kept:
    """Return both for a value that is set only where it differs: setting costs, up to seconds the first time."""
    return read, lambda value: None if read() == value else write(value)


def _legacy(read: Callable[[], Any]) -> object:
    """Return a precision under its older name; None: it was set under a newer one, which torch then refuses to tell."""
    try:
        return read()
    except RuntimeError:
        return None


def _set_precision(name: object) -> None:
    if name is not None:
        torch.set_float32_matmul_precision(str(name))


def _set_flag(path: str, value: object) -> None:
    if value is not None:
        module, _, name = path.rpartition(".")
        setattr(attrgetter(module)(backends) if module else backends, name, value)


def _cuda_state() -> object:
    with contextlib.suppress(RuntimeError):  # a kernel has broken the device
        return torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    return None


def _set_cuda_state(state: Any) -> None:
    with contextlib.suppress(RuntimeError):
        if state is not None:
            torch.cuda.set_rng_state(state)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _anomalies() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


def _set_variables(values: dict[str, str]) -> None:
    for name in os.environ.keys() - values.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in values.items() if os.environ.get(name) != value})


def _directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # a function has removed the one that it was in
        return str(Path.home())


def _set_directory(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # removed since
        os.chdir(path)


#: In the order in which they are set; the default device first: others make tensors.
_KEPT: tuple[_Kept, ...] = (
    _changed(torch.get_default_device, _set_device),
    (random.getstate, random.setstate),
    (np.random.get_state, np.random.set_state),
    (torch.get_rng_state, torch.set_rng_state),
    (_cuda_state, _set_cuda_state),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    _changed(_deterministic, lambda modes: torch.use_deterministic_algorithms(modes[0], warn_only=modes[1])),
    _changed(_anomalies, lambda modes: torch.autograd.set_detect_anomaly(*modes)),
    _changed(partial(_legacy, torch.get_float32_matmul_precision), _set_precision),
    *(_changed(partial(_legacy, partial(attrgetter(path), backends)), partial(_set_flag, path)) for path in _FLAGS),
    (lambda: dict(os.environ), _set_variables),
    (_directory, _set_directory),
)
