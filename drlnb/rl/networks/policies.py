"""Decide which network a task gets: the policies that fit its spaces, widths and activation.

Read from the task's spec alone, without torch.
"""

from collections.abc import Mapping, Sequence
from math import inf, isfinite

from drlnb.records.base import Facts
from drlnb.records.errors import ConfigError, UnsupportedSpace
from drlnb.records.spec import RlWork
from drlnb.rl.envs.masks import uses_masks
from drlnb.rl.networks.activations import NUMPY, named
from drlnb.rl.rows import form_of, is_image

__all__ = ["check_spaces", "images_scaled", "is_module", "network_shape", "normalised", "q_network", "spaces_of"]

#: Stable-Baselines3's default towers.
_DEFAULT_ARCH = (64, 64)


def spaces_of(spec: RlWork) -> tuple[Facts, Facts]:
    """Return a task's observation space and action space.

    Raises
    ------
    ValueError
        If the spec holds no spaces: they are filled in by :func:`drlnb.rl.envs.make.probe`.
    """
    if spec.observation_space is None or spec.action_space is None:
        raise ValueError(f"task {spec.name!r} holds no spaces; fill observation_space and action_space from probe()")
    return spec.observation_space, spec.action_space


def is_module(spec: RlWork) -> bool:
    """Return whether a task's network is a torch module instead of an MLP's towers."""
    policy, form = spec.hyperparameters.get("policy", "MlpPolicy"), form_of(spec.observation_space)
    if "features_extractor_class" in (spec.hyperparameters.get("policy_kwargs") or {}):
        return True
    if policy == "MultiInputPolicy":  # without images the keys' numbers side by side are all that an extractor gives
        return form is None or form.images
    return bool(policy != "MlpPolicy")


def check_spaces(spec: RlWork) -> None:
    """Refuse a task whose algorithm or policy cannot serve its spaces.

    A policy must fit the observations, as Stable-Baselines3 demands; some algorithms must be able to list the values of
    actions; action masks and state-dependent exploration need actions for which they have a meaning, and code.

    Parameters
    ----------
    spec
        The task; spaces that it does not hold are not looked at.

    Raises
    ------
    ConfigError, UnsupportedSpace
        With what would serve them.
    """
    hyper, space = spec.hyperparameters, spec.observation_space or {}
    policy, kind = hyper.get("policy", "MlpPolicy"), (spec.action_space or {}).get("kind")
    seen = space.get("of", space).get("kind")
    if seen == "dict" and policy in ("MlpPolicy", "CnnPolicy"):
        raise ConfigError(f"{policy} takes arrays, {spec.env} has Dict observations: say policy='MultiInputPolicy'")
    if space and seen != "dict" and policy == "MultiInputPolicy":
        raise ConfigError(f"MultiInputPolicy takes Dict observations, {spec.env} has {seen}: say MlpPolicy")
    if kind is None:
        return
    if spec.algo != "ppo" and kind != "discrete":
        raise UnsupportedSpace(f"{spec.algo} needs discrete actions, {spec.env} takes {kind} ones: choose ppo")
    if uses_masks(spec) and kind not in ("discrete", "multidiscrete"):
        raise ConfigError(f"use_masking needs discrete or multidiscrete actions, {spec.env} takes {kind} ones")
    if hyper.get("use_sde", False) and kind != "box":
        raise ConfigError(f"use_sde needs Box actions, {spec.env} takes {kind} ones")
    if hyper.get("use_sde", False) and isinstance(policy, Mapping):
        raise ConfigError("use_sde needs the features of MlpPolicy, CnnPolicy or MultiInputPolicy, not a function's")
    kwargs = hyper.get("policy_kwargs") or {}
    if kwargs.get("squash_output") and not isinstance(policy, Mapping) and not all(map(isfinite, _ends(spec))):
        raise ConfigError(f"squash_output needs actions with bounds, {spec.env} has none: leave it out")


def _ends(spec: RlWork) -> list[float]:
    """Return the bounds of a box of actions."""
    space = spec.action_space or {}
    return [inf if end is None else end for end in (*space["low"], *space["high"])]


def normalised(value: bool | Mapping[str, bool] | None) -> tuple[bool, bool]:
    """Return whether observations and whether rewards are normalised, from the setting ``normalize``."""
    if isinstance(value, Mapping):
        return bool(value.get("norm_obs", True)), bool(value.get("norm_reward", True))
    return bool(value), bool(value)


def images_scaled(spec: RlWork) -> bool:
    """Return whether an MLP's towers get images (uint8, three axes, 0 to 255) divided by 255, unless normalised.

    So does Stable-Baselines3's ``preprocess_obs``, whatever the policy, unless ``normalize_images`` is False.
    """
    kwargs, space = spec.hyperparameters.get("policy_kwargs") or {}, spec.observation_space or {}
    wanted = kwargs.get("normalize_images", True) is True and not normalised(spec.hyperparameters.get("normalize"))[0]
    return wanted and is_image(space)


def network_shape(
    policy_kwargs: Facts | None,
    *,
    default: Sequence[int] | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return hidden widths of the policy tower, of the value tower, and the activation's name.

    Parameters
    ----------
    policy_kwargs
        Stable-Baselines3's: ``net_arch`` as a list, ``{"pi": [..], "vf": [..]}`` or the old ``[{..}]``;
        ``activation_fn`` as text: ``tanh``, ``ReLU``, ``nn.Tanh``, ...
    default
        Widths where `policy_kwargs` has none; None: 64 and 64.

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
    if isinstance(arch, Mapping) and (unknown := sorted(map(str, arch.keys() - {"pi", "vf"}))):
        raise ConfigError(f"net_arch takes the keys pi, vf, not {', '.join(unknown)}")
    towers = (arch.get("pi", []), arch.get("vf", [])) if isinstance(arch, Mapping) else (arch, arch)
    if not all(isinstance(tower, list | tuple) for tower in towers):
        raise ConfigError(f"policy_kwargs net_arch holds widths, whole numbers >= 1, got {arch!r}")
    for width in (*towers[0], *towers[1]):
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise ConfigError(f"policy_kwargs net_arch holds widths, whole numbers >= 1, got {width!r}")
    activation = named(kwargs.get("activation_fn", "tanh"))
    if activation not in NUMPY:
        known = ", ".join(NUMPY)
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
        Widths where `policy_kwargs` has none; None: 64 and 64.

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
    widths, _, activation = network_shape(kwargs, default=default)
    return widths, activation
