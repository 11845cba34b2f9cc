"""Lay out the flat buffers: where each number lies, derived from the task's spec alone, on every side alike.

The learner holds one float32 vector: policy tower, policy head, (log standard deviation), then value tower and head.
What it *publishes* is shorter: a small header with the layout's fingerprint, the normaliser's statistics in float64,
and the policy's part of the vector.  Actors need no more.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from drlnb.records.spec import RlWork
from drlnb.rl.heads import Head
from drlnb.rl.networks import policies
from drlnb.rl.rows import vector_width

__all__ = ["HEADER_BYTES", "PI", "VF", "Entry", "Layout", "Q", "Shapes", "Tower", "assemble", "exploring", "layout_of"]

#: Names and shapes of tensors, in their order in the flat vector.
Shapes = Sequence[tuple[str, tuple[int, ...]]]


#: Names of an MLP's hidden layers (``pi.0.weight``, ...) and of its last one.
Tower = tuple[str, str]
#: The towers of a policy, of a value function, and of action values.
PI, VF, Q = ("pi", "action"), ("vf", "value"), ("q", "q.head")
#: Bytes before the statistics: 32 of SHA-256, the rest reserved; one cache line, so that what follows stays aligned.
HEADER_BYTES = 64
#: Entries start at multiples of 16 float32 = 64 bytes.
_ALIGN = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor in the flat float32 vector."""

    #: For example ``pi.0.weight``.
    name: str
    shape: tuple[int, ...]
    #: First position, in float32 numbers.
    start: int

    @property
    def stop(self) -> int:
        """First position after the tensor, in float32 numbers."""
        return self.start + prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Everything that two processes must agree on before they exchange parameters."""

    entries: tuple[Entry, ...]
    #: Length of the policy's part of the vector, in float32 numbers.
    n_policy: int
    #: Length of the whole vector, padding included, in float32 numbers.
    n_total: int
    #: Numbers per observation, after flattening; images beside other keys are not counted.
    obs_width: int
    #: What the policy's outputs mean.
    head: Head
    #: Name of the activation of MLP towers, see :data:`drlnb.rl.networks.activations.NUMPY`; ``module`` for modules.
    activation: str
    norm_obs: bool
    norm_reward: bool
    #: SHA-256 over all of the above.
    sha: bytes
    #: The towers of an MLP get images divided by 255.
    scaled: bool = False
    #: Entries at the end that are a module's buffers: they are published and saved, but no optimiser steps them.
    n_buffers: int = 0

    @property
    def n_statistics(self) -> int:
        """Length of the statistics, in float64 numbers: counts, means and M2 of observations and returns."""
        return 4 + 2 * (self.obs_width if self.norm_obs else 0)

    @property
    def policy_offset(self) -> int:
        """Where the policy starts in the published buffer, in bytes."""
        return HEADER_BYTES + -(-self.n_statistics * 8 // 64) * 64

    @property
    def published_bytes(self) -> int:
        """Size of the published buffer."""
        return self.policy_offset + 4 * self.n_policy

    @property
    def n_trained(self) -> int:
        """Length of the vector up to the buffers, in float32 numbers."""
        return self.entries[-self.n_buffers].start if self.n_buffers else self.n_total

    def __getitem__(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.name == name)

    def published(self, statistics: np.ndarray, policy: np.ndarray) -> np.ndarray:
        """Return a published buffer, uint8, shape ``(published_bytes,)``.

        Parameters
        ----------
        statistics
            float64, shape ``(n_statistics,)``.
        policy
            The policy's part of the flat vector, float32, shape ``(n_policy,)``.
        """
        buffer = np.zeros(self.published_bytes, np.uint8)
        buffer[:32] = np.frombuffer(self.sha, np.uint8)
        buffer[HEADER_BYTES : HEADER_BYTES + 8 * self.n_statistics] = statistics.view(np.uint8)
        buffer[self.policy_offset :] = policy.view(np.uint8)
        return buffer

    def statistics(self, published: np.ndarray) -> np.ndarray:
        """Return the statistics in a published buffer; float64, shape ``(n_statistics,)``."""
        return np.array(published[HEADER_BYTES : HEADER_BYTES + 8 * self.n_statistics]).view(np.float64)

    def check(self, parameters: np.ndarray) -> None:
        """Refuse a published buffer that was made for another layout.

        Raises
        ------
        ValueError
            If size or fingerprint differ.
        """
        if parameters.dtype != np.uint8 or parameters.shape != (self.published_bytes,):
            given = f"{parameters.dtype} {parameters.shape}"
            raise ValueError(f"parameters must be {self.published_bytes} uint8 numbers, got {given}")
        sha = parameters[:32].tobytes()
        if sha != self.sha:
            raise ValueError(f"parameters have layout {sha.hex()[:12]}, this task needs {self.sha.hex()[:12]}")


def assemble(
    spec: RlWork,
    policy: Shapes,
    rest: Shapes,
    *,
    activation: str = "tanh",
    head: Head | None = None,
    scaled: bool = False,
    n_buffers: int = 0,
) -> Layout:
    """Lay tensors out one after the other, the published ones first.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    policy
        Names and shapes of the tensors that actors need.
    rest
        Those of the tensors that only the learner needs.
    activation
        Name of the towers' activation.
    head
        What the policy's outputs mean; None: the head of the action space.
    scaled
        The network gets images divided by 255, which a module does itself.
    n_buffers
        How many of all tensors, at the end, are buffers.

    Raises
    ------
    ValueError
        If the spec holds no spaces: they are filled in by :func:`drlnb.rl.envs.make.probe`.
    """
    observation, action = policies.spaces_of(spec)
    head = head or Head.of(action)
    entries: list[Entry] = []
    start = n_policy = 0
    for name, shape in (*policy, *rest):
        entries.append(Entry(name, tuple(shape), start))
        start += -(-prod(shape) // _ALIGN) * _ALIGN
        n_policy = start if len(entries) <= len(policy) else n_policy
    norm_obs, norm_reward = policies.normalised(spec.hyperparameters.get("normalize"))
    identity = [[(e.name, e.shape, e.start) for e in entries], head.kind, head.sizes, activation, norm_obs, norm_reward]
    identity += [name for name, said in (("scaled", scaled), ("expln", head.expln), ("squash", head.squashed)) if said]
    identity += [f"{n_buffers} buffers"] if n_buffers else []
    return Layout(
        entries=tuple(entries),
        n_policy=n_policy,
        n_total=start,
        obs_width=vector_width(observation),
        head=head,
        activation=activation,
        norm_obs=norm_obs,
        norm_reward=norm_reward,
        sha=hashlib.sha256(json.dumps(identity).encode()).digest(),
        scaled=scaled,
        n_buffers=n_buffers,
    )


def _shapes(tower: Tower, widths: Sequence[int], n_in: int, n_out: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of a tower's tensors: ``prefix.0.weight``, ..., ``head.weight``, ``head.bias``."""
    layers = [f"{tower[0]}.{number}" for number in range(len(widths))]
    sizes = [n_in, *widths, n_out]
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for name, (before, after) in zip([*layers, tower[1]], pairwise(sizes), strict=True):
        shapes += [(f"{name}.weight", (after, before)), (f"{name}.bias", (after,))]
    return shapes


def exploring(spec: RlWork, n_features: int) -> tuple[Head, Shapes]:
    """Return the head of a task's actions, and the shapes of its deviations if it has some.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    n_features
        Of the policy's last hidden layer: state-dependent exploration multiplies them.
    """
    head, kwargs = Head.of(policies.spaces_of(spec)[1]), spec.hyperparameters.get("policy_kwargs") or {}
    if spec.hyperparameters.get("use_sde", False):
        expln, squashed = (bool(kwargs.get(name)) for name in ("use_expln", "squash_output"))
        head = head.exploring(n_features, expln=expln, squashed=squashed)
        d, n = head.sizes
        return head, [("log_std", (n, d if kwargs.get("full_std", True) else 1))]
    return head, [("log_std", (head.width,))] if head.kind == "box" else []


def layout_of(spec: RlWork) -> Layout:
    """Derive the layout of a task's networks from its spaces and settings, and refuse what does not fit."""
    observation, action = policies.spaces_of(spec)
    policies.check_spaces(spec)
    if policies.is_module(spec):
        from drlnb.rl.networks.modules import module_layout  # torch, which an MLP's collector never loads

        return module_layout(spec)
    head, obs_width = Head.of(action), vector_width(observation)
    kwargs, scaled = spec.hyperparameters.get("policy_kwargs"), policies.images_scaled(spec)
    if spec.algo == "dqn":
        widths, activation = policies.q_network(kwargs)
        return assemble(spec, _shapes(Q, widths, obs_width, head.width), (), activation=activation, scaled=scaled)
    pi, vf, activation = policies.network_shape(kwargs)
    policy = _shapes(PI, pi, obs_width, head.width)
    head, deviations = exploring(spec, (obs_width, *pi)[-1])
    policy += deviations
    rest = _shapes(VF, vf, obs_width, 1)
    return assemble(spec, policy, rest, activation=activation, head=head, scaled=scaled)
