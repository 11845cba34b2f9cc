"""Build the networks beside the MLP: policies on feature extractors, and modules of the user's own.

All are torch modules behind one face: ``both(obs)`` returns the policy's outputs ``(B, width)`` and the values
``(B,)``.  Their parameters become views of the learner's flat buffers.  What they get of raw observations is the
same as in Stable-Baselines3's policies: images (uint8, three axes, 0 to 255) are divided by 255 and turned to channels
first, choices are one-hot, the rest becomes float32; rows of a dictionary are taken apart into tensors by key.

They are in evaluation mode, where dropout is off and batch normalisation uses its running statistics, but for a round's
gradient steps: :mod:`drlnb.rl.networks.networks`.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from drlnb.records.base import Facts
from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.heads import Head, bounds
from drlnb.rl.networks.activations import named
from drlnb.rl.networks.extractors import NAMED, CombinedExtractor
from drlnb.rl.networks.layout import Layout, assemble, exploring
from drlnb.rl.networks.policies import images_scaled, network_shape, q_network
from drlnb.rl.networks.same_bits import own_draws, seed_all
from drlnb.rl.pickled import unpack
from drlnb.rl.rows import Part, form_of, is_image, part_spaces
from drlnb.rl.seeding import INIT, reset_seed

__all__ = ["PolicyModule", "attach", "build", "is_kept", "module_layout", "space_of", "tensors_of"]

_ACTIVATIONS = (
    nn.Tanh,
    nn.ReLU,
    nn.ELU,
    nn.LeakyReLU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Mish,
    nn.SELU,
    nn.ReLU6,
)
_CLASSES = {named(kind): kind for kind in _ACTIVATIONS}
#: Arguments of `policy_kwargs` that a user's own module does not get: they are ours.
OURS = frozenset({"optimizer_class", "optimizer_kwargs", "log_std_init", "normalize_images"})


class Seen:
    """Turn raw observations of a task into what a module takes."""

    def __init__(self, spec: RlWork) -> None:
        self._form = form_of(spec.observation_space)
        kwargs = spec.hyperparameters.get("policy_kwargs") or {}
        #: Images are divided by 255.
        self._scaled = kwargs.get("normalize_images", True) is True if self._form else images_scaled(spec)
        parts = part_spaces(spec.observation_space or {})
        #: Names of the boxes whose channels come last and are moved to the front; the empty text: of an array.
        self._last = frozenset(name for name, part in parts.items() if _channels_last(part))

    def __call__(self, obs: Tensor) -> Tensor | dict[str, Tensor]:
        """Return a tensor, or tensors by key, float32, for raw observations ``(B, *obs)``."""
        if self._form is None:
            return self._floats(obs, "", scaled=self._scaled)
        vector = obs
        if self._form.images:
            vector = obs[:, : 4 * self._form.n_vector].contiguous().view(torch.float32)
        parts = {part.name: self._part(part, obs, vector) for part in self._form.parts}
        return parts.get("", parts)  # one part without a name: the observation is a choice

    def _part(self, part: Part, rows: Tensor, vector: Tensor) -> Tensor:
        values = (rows if part.kind == "image" else vector)[:, part.start : part.stop]
        if part.sizes:
            return values
        return self._floats(values.reshape(-1, *part.shape), part.name, scaled=self._scaled and part.kind == "image")

    def _floats(self, values: Tensor, name: str, *, scaled: bool) -> Tensor:
        values = values.permute(0, 3, 1, 2) if name in self._last else values
        return values.float() / 255.0 if scaled else values.float()


def _channels_last(space: Facts) -> bool:
    return space["kind"] == "box" and len(space["shape"]) == 3 and int(np.argmin(space["shape"])) == 2


def network_space(plain: Facts) -> gymnasium.Space:
    """Return the observation space that networks see: channels first."""
    spaces = {name: action_space(part, last=_channels_last(part)) for name, part in part_spaces(plain).items()}
    return spaces[""] if "" in spaces else gymnasium.spaces.Dict(list(spaces.items()))


def space_of(plain: Facts) -> gymnasium.Space:
    """Return the space that a plain description is of, as the environment has it."""
    spaces = {name: action_space(part) for name, part in part_spaces(plain).items()}
    return spaces[""] if "" in spaces else gymnasium.spaces.Dict(list(spaces.items()))


def action_space(plain: Facts, *, last: bool = False) -> gymnasium.Space:
    """Return a basic space from its plain description; with `last` the channels, which come last, are moved first."""
    kind = plain["kind"]
    if kind == "discrete":
        return gymnasium.spaces.Discrete(int(plain["n"]), start=int(plain.get("start", 0)))
    shape = tuple(plain["shape"])
    if kind == "multidiscrete":
        return gymnasium.spaces.MultiDiscrete(np.array(plain["nvec"]).reshape(shape))
    if kind == "multibinary":
        return gymnasium.spaces.MultiBinary(shape)
    low, high = (side.reshape(shape).astype(plain["dtype"]) for side in bounds(plain))
    if last:
        low, high = low.transpose(2, 0, 1), high.transpose(2, 0, 1)
    return gymnasium.spaces.Box(low, high, low.shape, np.dtype(plain["dtype"]).type)


class ExtractorPolicy(nn.Module):
    """A trunk of features that policy and value share, a tower for each, and their heads.

    Parameters
    ----------
    features
        Has ``features_dim``.
    of_value
        Features of the value's own; None: both share theirs.
    pi, vf
        Hidden widths of the towers.
    activation
        Name of the towers' activation.
    width
        Outputs of the policy.
    explores
        The policy's last hidden layer follows its outputs.
    """

    def __init__(
        self,
        features: nn.Module,
        of_value: nn.Module | None,
        pi: tuple[int, ...],
        vf: tuple[int, ...],
        activation: str,
        width: int,
        *,
        explores: bool,
    ) -> None:
        super().__init__()
        self.features, self.of_value, self._explores = features, of_value, explores
        n_in: int = features.features_dim
        #: Width of the policy's last hidden layer.
        self.n_latent = (n_in, *pi)[-1]
        self.pi, self.vf = (self._tower(n_in, widths, activation) for widths in (pi, vf))
        self.action = nn.Linear(self.n_latent, width)
        self.value = nn.Linear((n_in, *vf)[-1], 1)

    @staticmethod
    def _tower(n_in: int, widths: tuple[int, ...], activation: str) -> nn.Sequential:
        layers: list[nn.Module] = []
        for width in widths:
            layers += [nn.Linear(n_in, width), _CLASSES[activation]()]
            n_in = width
        return nn.Sequential(*layers)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw orthogonal weights as Stable-Baselines3 does: sqrt 2 in trunk and towers, .01 and 1 at the heads."""
        gains = {id(self.action): 0.01, id(self.value): 1.0}
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(layer.weight, gains.get(id(layer), 2.0**0.5), generator=generator)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def _outputs(self, features: Tensor) -> Tensor:
        latent = self.pi(features)
        return torch.cat((self.action(latent), latent), 1) if self._explores else self.action(latent)

    def actor(self, obs: Tensor) -> Tensor:
        """Return the policy's outputs ``(B, width)``, its last hidden layer behind them if it explores."""
        return self._outputs(self.features(obs))

    def critic(self, obs: Tensor) -> Tensor:
        """Return values ``(B,)``."""
        features = self.features if self.of_value is None else self.of_value
        return self.value(self.vf(features(obs)))[:, 0]

    def both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and values, from one pass through a trunk that they share."""
        if self.of_value is not None:
            return self.actor(obs), self.critic(obs)
        features = self.features(obs)
        return self._outputs(features), self.value(self.vf(features))[:, 0]


class ExtractorQ(nn.Module):
    """Action values on features: Stable-Baselines3's ``QNetwork``, with torch's own starting weights.

    Parameters
    ----------
    features
        Has ``features_dim``.
    widths
        Hidden widths.
    activation
        Name of the activation.
    n_actions
        Outputs.
    """

    def __init__(self, features: nn.Module, widths: tuple[int, ...], activation: str, n_actions: int) -> None:
        super().__init__()
        self.features = features
        n_in: int = features.features_dim
        self.q = ExtractorPolicy._tower(n_in, widths, activation)
        self.head = nn.Linear((n_in, *widths)[-1], n_actions)

    def actor(self, obs: Tensor) -> Tensor:
        """Return action values ``(B, n_actions)``."""
        return self.head(self.q(self.features(obs)))


class PolicyModule(nn.Module):
    """A module behind the task's preprocessing.

    Parameters
    ----------
    net
        Has ``actor(obs) -> (B, width)`` and ``critic(obs) -> (B,)``, perhaps ``both``; for DQN ``actor`` alone, which
        gives action values.
    seen
        What the module sees of raw observations.
    """

    def __init__(self, net: nn.Module, seen: Seen) -> None:
        super().__init__()
        self.net = net
        self._seen = seen

    def actor(self, obs: Tensor) -> Tensor:
        """Return the policy's outputs ``(B, width)`` for raw observations ``(B, *obs)``."""
        return self.net.actor(self._seen(obs))

    def critic(self, obs: Tensor) -> Tensor:
        """Return values ``(B,)`` for raw observations ``(B, *obs)``."""
        return self.net.critic(self._seen(obs))

    def both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and values for raw observations ``(B, *obs)``."""
        seen = self._seen(obs)
        if hasattr(self.net, "both"):
            return self.net.both(seen)
        return self.net.actor(seen), self.net.critic(seen)


def _own(packed: Mapping[str, str], setting: str) -> Any:  # a user's class or function
    try:
        return unpack(packed["pickled"])
    except ValueError as error:
        raise ConfigError(f"{setting} {packed.get('name')} {error}") from error


def _made(packed: Mapping[str, str], setting: str, *args: object, **kwargs: object) -> object:
    """Call a user's class or function; ConfigError with what it raised."""
    make = _own(packed, setting)
    try:
        made = make(*args, **kwargs)
    except Exception as error:  # foreign code: whatever it raises becomes ours
        said = next(iter(str(error).splitlines()), "")
        raise ConfigError(f"{setting} {packed.get('name')} raised {type(error).__name__}: {said}") from error
    if isinstance(made, nn.Module) and any(map(is_lazy, (*made.parameters(), *made.buffers()))):
        raise ConfigError(f"{setting} {packed.get('name')} has lazy layers: give their sizes, the spaces say them")
    return made


def _features(kwargs: Facts, spec: RlWork, space: gymnasium.Space) -> nn.Module:
    keyed = spec.hyperparameters.get("policy") == "MultiInputPolicy"
    chosen = kwargs.get("features_extractor_class", "CombinedExtractor" if keyed else "NatureCNN")
    more = dict(kwargs.get("features_extractor_kwargs") or {})
    if isinstance(chosen, Mapping):
        made = _made(chosen, "policy_kwargs features_extractor_class", space, **more)
        if not isinstance(made, nn.Module) or not isinstance(getattr(made, "features_dim", None), int):
            raise ConfigError(f"features_extractor_class {chosen['name']} must make an nn.Module with features_dim")
        return made
    if keyed:
        return CombinedExtractor(space, **more)
    scaled = kwargs.get("normalize_images", True)
    if not is_image(spec.observation_space or {}) and (scaled or len(space.shape or ()) != 3):
        raise ConfigError(
            f"{spec.env}: CnnPolicy takes images (uint8, 3 axes, 0 to 255; any numbers with normalize_images=False), "
            f"observations are {space}; use MlpPolicy, a wrapper that makes images, or a network of your own"
        )
    return NAMED[chosen](space, **more)


def build(spec: RlWork, device: torch.device | str = "cpu") -> PolicyModule:
    """Build a task's network, in evaluation mode, with its starting weights, which depend on the task's seed alone.

    Raises
    ------
    ConfigError
        If the observations are no images where convolutions need them, or a user's factory cannot be rebuilt or
        returns something else.
    """
    kwargs = dict(spec.hyperparameters.get("policy_kwargs") or {})
    policy = spec.hyperparameters.get("policy", "MlpPolicy")
    seen, space = Seen(spec), network_space(spec.observation_space or {})
    head = Head.of(spec.action_space or {})
    seed = reset_seed(spec.seed, INIT)
    extractor = kwargs.get("features_extractor_class", "NatureCNN" if policy == "CnnPolicy" else None)
    default = () if extractor in ("NatureCNN", "ImpalaCNN") else None  # no towers on theirs, as Stable-Baselines3
    with own_draws():  # a user's module draws from the global generators
        seed_all(seed)
        if isinstance(policy, Mapping):
            more = {key: value for key, value in kwargs.items() if key not in OURS}
            net = _made(policy, "policy", space, action_space(spec.action_space or {}), **more)
            needed = ("actor",) if spec.algo == "dqn" else ("actor", "critic")
            if not isinstance(net, nn.Module) or not all(callable(getattr(net, name, None)) for name in needed):
                methods = " and ".join(f"{name}(obs)" for name in needed)
                raise ConfigError(f"policy {policy['name']} must make an nn.Module with {methods}")
        elif spec.algo == "dqn":
            widths, activation = q_network(kwargs, default=default)
            net = ExtractorQ(_features(kwargs, spec, space), widths, activation, head.width)
        else:
            pi, vf, activation = network_shape(kwargs, default=default)
            trunks = _features(kwargs, spec, space), None
            if not kwargs.get("share_features_extractor", True):
                trunks = trunks[0], _features(kwargs, spec, space)
            explores = bool(spec.hyperparameters.get("use_sde", False))
            net = ExtractorPolicy(*trunks, pi, vf, activation, head.width, explores=explores)
            if kwargs.get("ortho_init", True):
                net.initialise(torch.Generator().manual_seed(seed))
    return PolicyModule(net, seen).to(device).eval()


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's parameters by name, then its buffers: those of float32, and batch normalisation's counts."""
    return {**dict(module.named_parameters()), **{name: b for name, b in module.named_buffers() if is_kept(name, b)}}


def is_kept(name: str, buffer: Tensor) -> bool:
    """Return whether a buffer is published and saved, as float32 numbers; others must stay as they are made."""
    floats = buffer.dtype == torch.float32 and buffer.layout == torch.strided
    return floats or name.endswith("num_batches_tracked")


def module_layout(spec: RlWork, module: PolicyModule | None = None) -> Layout:
    """Return the layout of a task whose network is a module: all of its parameters and buffers are published."""
    module = module or build(spec)
    head, deviations = exploring(spec, getattr(module.net, "n_latent", 0))
    shapes = [(name, tuple(tensor.shape)) for name, tensor in tensors_of(module).items()]
    n = len(list(module.parameters()))
    policy = [*shapes[:n], *deviations, *shapes[n:]]
    return assemble(spec, policy, (), activation="module", head=head, n_buffers=len(shapes) - n)


def attach(module: nn.Module, places: Mapping[str, Tensor], grads: Mapping[str, Tensor] | None = None) -> None:
    """Make a module's tensors, and its parameters' gradients, views of flat tensors, which get its values."""
    for name, tensor in tensors_of(module).items():
        if tensor.shape != places[name].shape:
            raise ConfigError(f"the network's {name} has the shape {tuple(tensor.shape)} now, which must not change")
        if tensor.data_ptr() != places[name].data_ptr():
            places[name].copy_(tensor.data)
            tensor.data = places[name]
        if grads is not None and isinstance(tensor, nn.Parameter):
            tensor.grad = grads[name]
