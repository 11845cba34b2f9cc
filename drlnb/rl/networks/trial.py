"""Try a module on a few observations before it is trained: what breaks the contract is told, by name."""

import random

import numpy as np
import torch
from torch import Tensor

from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.heads import Head
from drlnb.rl.networks.layout import exploring
from drlnb.rl.networks.modules import PolicyModule, is_kept
from drlnb.rl.networks.same_bits import own_draws

__all__ = ["check"]


def check(module: PolicyModule, spec: RlWork) -> bool:
    """Try a module on two observations, in evaluation mode and in training mode; it stays as it is.

    Parameters
    ----------
    module
        In evaluation mode.
    spec
        The task, with its spaces filled in.

    Returns
    -------
    bool
        Whether it computes otherwise in training mode, as with dropout or batch normalisation.

    Raises
    ------
    ConfigError
        If a parameter is not of float32, outputs have a wrong shape or are not finite, differ when asked twice in
        evaluation mode, a buffer changes there, or one that is not kept changes in training mode, a parameter gets no
        gradient, or several learners would each see a part of a minibatch; the message names it.
    """
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise ConfigError(
                f"parameter {name} of the network is {parameter.dtype}, and policies are trained in float32: convert "
                "it with .float(), keep a complex one as two real ones, and what is not trained as a buffer"
            )
    head, plain = exploring(spec, getattr(module.net, "n_latent", 0))[0], dict(spec.observation_space or {})
    rows = np.zeros((2, *plain["shape"]), np.dtype(plain["dtype"]))
    rows[1] += np.ones((), rows.dtype)
    obs = torch.from_numpy(rows).to(next(module.parameters()).device)
    before = _buffers(module)
    outputs = _tried(module, obs, spec, head)
    if not all(map(torch.equal, outputs, _answers(module, obs, spec))):
        raise ConfigError(
            "the network answers differently when asked twice in evaluation mode: leave out noise that stays there, "
            "and say dropout(x, p, training=self.training)"
        )
    if changed := _changed(module, before):
        raise ConfigError(
            f"the network's buffers {', '.join(changed)} change as it acts: change them if self.training alone"
        )
    sum(tensor.sum() for tensor in outputs).backward()
    without = [name for name, p in module.named_parameters() if p.requires_grad and p.grad is None]
    if without:
        raise ConfigError(f"no gradient reaches {', '.join(without)}: actor and critic must use every parameter")
    module.zero_grad(set_to_none=True)
    has_modes = _trained(module, obs, spec, head, outputs)
    if has_modes and spec.n_learners > 1:
        raise ConfigError(
            "n_learners must be 1 for a network with dropout or batch normalisation, where each learner would see a "
            f"part of a minibatch, got {spec.n_learners}"
        )
    return has_modes


def _trained(module: PolicyModule, obs: Tensor, spec: RlWork, head: Head, outputs: tuple[Tensor, ...]) -> bool:
    """Try a module in training mode; return whether it draws, changes buffers or answers otherwise there."""
    before = _buffers(module)
    with own_draws(), torch.no_grad():
        drawn = _drawn(obs.device)
        module.train()
        try:
            others = _tried(module, obs, spec, head)
        finally:
            module.eval()
        differs = drawn != _drawn(obs.device) or not all(map(torch.equal, outputs, others))
    changed = _changed(module, before)
    now = dict(module.named_buffers())
    for name in changed:
        if not is_kept(name, before[name]) or now[name].shape != before[name].shape:
            raise ConfigError(
                f"the network's buffer {name} changes in training and is {before[name].dtype} of shape "
                f"{tuple(before[name].shape)}: what changes must be float32, and keep its shape"
            )
        now[name].copy_(before[name])
    return differs or bool(changed)


def _tried(module: PolicyModule, obs: Tensor, spec: RlWork, head: Head) -> tuple[Tensor, ...]:
    """Return what a module answers, which has the right shapes and is finite."""
    mode = "training" if module.training else "evaluation"
    try:
        outputs = _answers(module, obs, spec)
    except Exception as error:  # foreign code
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(f"the network raised for {len(obs)} observations in {mode} mode: {told}") from error
    for name, tensor, wanted in zip(("actor", "critic"), outputs, ((2, head.width), (2,)), strict=False):
        if tuple(tensor.shape) != wanted:
            raise ConfigError(f"{name} must return the shape {wanted} for 2 observations, got {tuple(tensor.shape)}")
        if not torch.isfinite(tensor).all():
            raise ConfigError(f"{name} returned numbers that are not finite for 2 observations in {mode} mode")
    return outputs


def _answers(module: PolicyModule, obs: Tensor, spec: RlWork) -> tuple[Tensor, ...]:
    return (module.actor(obs),) if spec.algo == "dqn" else module.both(obs)


def _buffers(module: PolicyModule) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def _changed(module: PolicyModule, before: dict[str, Tensor]) -> list[str]:
    return [name for name, buffer in module.named_buffers() if not torch.equal(buffer, before[name])]


def _drawn(device: torch.device) -> tuple[object, ...]:
    """Return where the generators stand that a module may draw from."""
    _, of_numpy, *place = np.random.get_state()  # noqa: NPY002 - users draw from the global one
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.empty(0)
    of_torch = (bytes(state.tolist()) for state in (torch.get_rng_state(), on_device.byte()))
    return random.getstate(), bytes(np.asarray(of_numpy)), *place, *of_torch
