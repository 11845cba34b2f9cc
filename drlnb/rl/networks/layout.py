"""Lay out the flat buffers: where each number lies, derived from the task's spec alone, on every side alike.

The learner holds one float32 vector: policy tower, policy head, (log standard deviation), then value tower and head.
What it *publishes* is shorter: a small header with the layout's fingerprint, the normaliser's statistics in float64,
and the policy's part of the vector.  Actors need no more.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from drlnb.records.errors import ConfigError, UnsupportedSpace
from drlnb.records.spec import TaskSpec
from drlnb.rl.heads import Head
from drlnb.rl.networks.activations import BY_HAND, NAMES, named
from drlnb.rl.plain import Facts, Space
from drlnb.rl.rows import form_of, is_image, vector_width

__all__ = [
    "HEADER_BYTES",
    "Entry",
    "Layout",
    "Shapes",
    "assemble",
    "check_discrete",
    "check_exploration",
    "check_policy",
    "images_scaled",
    "is_module",
    "layout_of",
    "mlp_tower",
    "network_shape",
    "normalised",
    "q_network",
    "spaces_of",
]

#: Names and shapes of tensors, in their order in the flat vector.
Shapes = Sequence[tuple[str, tuple[int, ...]]]


#: Bytes before the statistics: 32 of SHA-256, the rest reserved; one cache line, so that what follows stays aligned.
HEADER_BYTES = 64
#: Entries start at multiples of 16 float32 = 64 bytes.
_ALIGN = 16
#: Stable-Baselines3's default towers.
_DEFAULT_ARCH = (64, 64)


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
    #: Name of the activation of MLP towers, see :data:`drlnb.rl.networks.activations.NAMES`; ``module`` for modules.
    activation: str
    norm_obs: bool
    norm_reward: bool
    #: SHA-256 over all of the above.
    sha: bytes
    #: The towers of an MLP get images divided by 255.
    scaled: bool = False

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
    def action_width(self) -> int:
        """Outputs of the policy network: logits or means."""
        return self.head.width

    @property
    def discrete(self) -> bool:
        """The action is one choice among a few."""
        return self.head.kind == "discrete"

    def __getitem__(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.name == name)

    def published(self, statistics: np.ndarray | None, policy: np.ndarray) -> np.ndarray:
        """Return a published buffer, uint8, shape ``(published_bytes,)``.

        Parameters
        ----------
        statistics
            float64, shape ``(n_statistics,)``; None: zeros.
        policy
            The policy's part of the flat vector, float32, shape ``(n_policy,)``.
        """
        buffer = np.zeros(self.published_bytes, np.uint8)
        buffer[:32] = np.frombuffer(self.sha, np.uint8)
        if statistics is not None:
            buffer[HEADER_BYTES : HEADER_BYTES + 8 * self.n_statistics] = statistics.view(np.uint8)
        buffer[self.policy_offset :] = policy.view(np.uint8)
        return buffer

    def check(self, parameters: np.ndarray) -> None:
        """Refuse a published buffer that was made for another layout.

        Raises
        ------
        ValueError
            If size or fingerprint differ.
        """
        if parameters.dtype != np.uint8 or parameters.shape != (self.published_bytes,):
            raise ValueError(
                f"parameters must be {self.published_bytes} uint8 numbers, got {parameters.dtype} {parameters.shape}"
            )
        sha = parameters[:32].tobytes()
        if sha != self.sha:
            raise ValueError(f"parameters have layout {sha.hex()[:12]}, this task needs {self.sha.hex()[:12]}")


def normalised(value: bool | Mapping[str, bool] | None) -> tuple[bool, bool]:
    """Return whether observations and whether rewards are normalised, from the setting ``normalize``."""
    if isinstance(value, Mapping):
        return bool(value.get("norm_obs", True)), bool(value.get("norm_reward", True))
    return bool(value), bool(value)


def spaces_of(spec: TaskSpec) -> tuple[Space, Space]:
    """Return a task's observation space and action space.

    Raises
    ------
    ValueError
        If the spec holds no spaces: they are filled in by :func:`drlnb.rl.envs.make.probe`.
    """
    if spec.observation_space is None or spec.action_space is None:
        raise ValueError(f"task {spec.name!r} holds no spaces; fill observation_space and action_space from probe()")
    return spec.observation_space, spec.action_space


def is_module(spec: TaskSpec) -> bool:
    """Return whether a task's network is a torch module instead of an MLP's towers."""
    policy, form = spec.hyperparameters.get("policy", "MlpPolicy"), form_of(spec.observation_space)
    if "features_extractor_class" in (spec.hyperparameters.get("policy_kwargs") or {}):
        return True
    if policy == "MultiInputPolicy":  # without images the keys' numbers side by side are all that an extractor gives
        return form is None or form.images
    return bool(policy != "MlpPolicy")


def check_policy(spec: TaskSpec) -> None:
    """Refuse a policy that does not fit a task's observations, as Stable-Baselines3 does.

    Raises
    ------
    ConfigError
        Naming the policy that fits.
    """
    policy, space = spec.hyperparameters.get("policy", "MlpPolicy"), spec.observation_space or {}
    keyed = space.get("of", {}).get("kind") == "dict"
    if keyed and policy in ("MlpPolicy", "CnnPolicy"):
        raise ConfigError(f"{policy} takes arrays, {spec.env} has Dict observations: say policy='MultiInputPolicy'")
    if space and not keyed and policy == "MultiInputPolicy":
        raise ConfigError(f"MultiInputPolicy takes Dict observations, {spec.env} has {_kind(space)}: say MlpPolicy")


def check_discrete(spec: TaskSpec) -> None:
    """Refuse actions whose values an algorithm cannot list.

    Raises
    ------
    UnsupportedSpace
        If the action space is there and not discrete.
    """
    kind = (spec.action_space or {}).get("kind", "discrete")
    if kind != "discrete":
        raise UnsupportedSpace(f"{spec.algo} needs discrete actions, {spec.env} takes {kind} ones: choose ppo")


def check_exploration(spec: TaskSpec) -> None:
    """Refuse state-dependent exploration where it has no meaning, or no code.

    Raises
    ------
    ConfigError
        Naming what it needs.
    """
    kind = (spec.action_space or {}).get("kind", "box")
    if not spec.hyperparameters.get("use_sde", False):
        return
    if kind != "box":
        raise ConfigError(f"use_sde needs Box actions, {spec.env} takes {kind} ones")
    if is_module(spec):
        raise ConfigError("use_sde needs an MLP (MlpPolicy, or MultiInputPolicy without images)")


def _kind(space: Space) -> str:
    return str(space.get("of", space)["kind"])


def images_scaled(spec: TaskSpec) -> bool:
    """Return whether an MLP's towers get images (uint8, three axes, 0 to 255) divided by 255, unless normalised.

    So does Stable-Baselines3's ``preprocess_obs``, whatever the policy, unless ``normalize_images`` is False.
    """
    kwargs, space = spec.hyperparameters.get("policy_kwargs") or {}, spec.observation_space or {}
    wanted = kwargs.get("normalize_images", True) is True and not normalised(spec.hyperparameters.get("normalize"))[0]
    return wanted and is_image(space)


def network_shape(
    policy_kwargs: Facts | None,
    *,
    activations: Sequence[str] = NAMES,
    default: Sequence[int] | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return hidden widths of the policy tower, of the value tower, and the activation's name.

    Parameters
    ----------
    policy_kwargs
        Stable-Baselines3's: ``net_arch`` as a list, ``{"pi": [..], "vf": [..]}`` or the old ``[{..}]``;
        ``activation_fn`` as text: ``tanh``, ``ReLU``, ``nn.Tanh``, ...
    activations
        Those that are known.
    default
        Widths where `policy_kwargs` says none; None: 64 and 64.

    Raises
    ------
    ConfigError
        If a width is not a whole number >= 1 or the activation is unknown.
    """
    kwargs = dict(policy_kwargs or {})
    arch = kwargs.get("net_arch")
    if arch is None:
        arch = _DEFAULT_ARCH if default is None else default
    if isinstance(arch, list | tuple) and len(arch) == 1 and isinstance(arch[0], Mapping):
        arch = arch[0]
    towers = (arch.get("pi", []), arch.get("vf", [])) if isinstance(arch, Mapping) else (arch, arch)
    for width in (*towers[0], *towers[1]):
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise ConfigError(f"policy_kwargs net_arch holds widths, whole numbers >= 1, got {width!r}")
    activation = named(kwargs.get("activation_fn", "tanh"))
    if activation not in activations:
        known = ", ".join(activations)
        raise ConfigError(f"policy_kwargs activation_fn must be one of {known}, got {kwargs['activation_fn']!r}")
    return tuple(towers[0]), tuple(towers[1]), activation


def q_network(policy_kwargs: Facts | None, default: Sequence[int] | None = None) -> tuple[tuple[int, ...], str]:
    """Return hidden widths and activation of an action-value network.

    Parameters
    ----------
    policy_kwargs
        ``net_arch``, a list of widths (64, 64); ``activation_fn`` as text: ``ReLU``, ``nn.Tanh``, ...; what else it
        holds is not read.
    default
        Widths where `policy_kwargs` says none; None: 64 and 64.

    Raises
    ------
    ConfigError
        If a width or the activation is unknown.

    Examples
    --------
    >>> q_network({"net_arch": [256, 256]})
    ((256, 256), 'relu')
    """
    kwargs = dict(policy_kwargs or {})
    kwargs["activation_fn"] = kwargs.get("activation_fn") or "relu"  # Stable-Baselines3's for DQN
    arch = kwargs.get("net_arch", ())
    if not isinstance(arch, list | tuple) or any(isinstance(width, Mapping) for width in arch):
        raise ConfigError(f"net_arch must be a list of widths, whole numbers >= 1, got {arch!r}")
    widths, _, activation = network_shape(kwargs, activations=BY_HAND, default=default)
    return widths, activation


def assemble(
    spec: TaskSpec,
    policy: Shapes,
    rest: Shapes,
    *,
    activation: str = "tanh",
    head: Head | None = None,
    scaled: bool = False,
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

    Raises
    ------
    ValueError
        If the spec holds no spaces: they are filled in by :func:`drlnb.rl.envs.make.probe`.
    """
    observation, action = spaces_of(spec)
    head = head or Head.of(action)
    entries: list[Entry] = []
    start = n_policy = 0
    for name, shape in (*policy, *rest):
        entries.append(Entry(name, tuple(shape), start))
        start += -(-prod(shape) // _ALIGN) * _ALIGN
        n_policy = start if len(entries) <= len(policy) else n_policy
    norm_obs, norm_reward = normalised(spec.hyperparameters.get("normalize"))
    identity = [[(e.name, e.shape, e.start) for e in entries], head.kind, head.sizes, activation, norm_obs, norm_reward]
    identity += ["scaled"] if scaled else []
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
    )


def mlp_tower(prefix: str, head: str, widths: Sequence[int], n_in: int, n_out: int) -> Shapes:
    """Return names and shapes of a tower's tensors: ``prefix.0.weight``, ..., ``head.weight``, ``head.bias``."""
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for number, width in enumerate(widths):
        shapes += [(f"{prefix}.{number}.weight", (width, n_in)), (f"{prefix}.{number}.bias", (width,))]
        n_in = width
    return [*shapes, (f"{head}.weight", (n_out, n_in)), (f"{head}.bias", (n_out,))]


def layout_of(spec: TaskSpec) -> Layout:
    """Derive the layout of a policy and a value function from a task's spaces and settings.

    Raises
    ------
    ValueError
        If the spec holds no spaces: they are filled in by :func:`drlnb.rl.envs.make.probe`.
    """
    observation, action = spaces_of(spec)
    check_policy(spec)
    check_exploration(spec)
    if is_module(spec):
        from drlnb.rl.networks.modules import module_layout  # torch, which an MLP's collector never loads

        return module_layout(spec)
    head, obs_width = Head.of(action), vector_width(observation)
    pi, vf, activation = network_shape(spec.hyperparameters.get("policy_kwargs"))
    policy = [*mlp_tower("pi", "action", pi, obs_width, head.width)]
    if head.kind == "box":
        policy.append(("log_std", (head.width,)))
    if spec.hyperparameters.get("use_sde", False):
        head = head.exploring((obs_width, *pi)[-1])
        policy[-1] = ("log_std", head.sizes[::-1])
    rest = mlp_tower("vf", "value", vf, obs_width, 1)
    return assemble(spec, policy, rest, activation=activation, head=head, scaled=images_scaled(spec))
