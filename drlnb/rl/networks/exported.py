"""Build a task's network as one torch module, whose parameters have the names of the layout."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from drlnb.records.spec import RlWork
from drlnb.rl.heads import bounds
from drlnb.rl.networks.distributions import Distribution
from drlnb.rl.networks.layout import Layout, layout_of
from drlnb.rl.networks.modules import ExtractorPolicy, build, module_layout
from drlnb.rl.networks.policies import is_module
from drlnb.rl.networks.trained_state import views
from drlnb.rl.normalise import CLIP, EPSILON, split_statistics
from drlnb.rl.rows import as_rows, form_of

__all__ = ["ActionValues", "MostLikely", "Network", "Observations", "Parts", "parts_of"]

#: What a network takes: raw observations ``(B, *obs)``, by key where the space has keys (or their rows).
Observations: TypeAlias = Tensor | Mapping[str, Tensor]


class Tower(nn.Sequential):
    """Dense layers with an activation behind each.

    Parameters
    ----------
    activation
        Its name in ``torch.nn.functional``.
    """

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Return the last layer's outputs, behind the activation."""
        activate = getattr(functional, self.activation, None) or getattr(torch, self.activation)
        for name, layer in self.named_children():
            if name != "head":  # an action value's, see :data:`drlnb.rl.networks.layout.Q`
                x = activate(layer(x))
        return x


class Latent(nn.Module):
    """The hidden layers behind the features, as Stable-Baselines3's ``mlp_extractor`` has them."""

    def __init__(self, policy_net: nn.Module, value_net: nn.Module) -> None:
        super().__init__()
        self.policy_net, self.value_net = policy_net, value_net

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the heads of policy and value get."""
        return self.policy_net(features), self.value_net(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        """Return what the policy's head gets."""
        return self.policy_net(features)

    def forward_critic(self, features: Tensor) -> Tensor:
        """Return what the value's head gets."""
        return self.value_net(features)


#: What action values have by their policy.
_OF_POLICY = ("predict", "save", "device", "obs_to_tensor", "observation_space", "action_space", "set_training_mode")


class Parts(NamedTuple):
    """The parts of a policy's network, under Stable-Baselines3's names."""

    features_extractor: nn.Module
    pi_features_extractor: nn.Module
    vf_features_extractor: nn.Module
    mlp_extractor: Latent
    action_net: nn.Module
    value_net: nn.Module


class Network(nn.Module):
    """A task's network: outputs of the policy, or action values, and values of states.

    Its parameters have the names of ``get_parameters()``.  They hold nothing yet: :meth:`fill` puts values in.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    """

    def __init__(self, spec: RlWork) -> None:
        super().__init__()
        #: The task.
        self.spec = spec
        module = build(spec) if is_module(spec) else None
        #: Which numbers it has, and what its outputs mean.
        self.layout = layout_of(spec) if module is None else module_layout(spec, module)
        self.__dict__["_module"] = module  # its parts are this module's, under the same names
        for name, child in () if module is None else module.named_children():
            self.add_module(name, child)
        if module is None:
            _build_towers(self, "q" if spec.algo == "dqn" else "pi vf")
        for entry in self.layout.entries:
            if entry.name == "log_std":
                self.log_std = nn.Parameter(torch.zeros(entry.shape))
        self._form, self._space = form_of(spec.observation_space), dict(spec.observation_space or {})
        space = dict(spec.action_space or {})
        self._shape, self._dtype = tuple(space.get("shape", ())), getattr(torch, space.get("dtype", "int64"))
        self.register_buffer("start", torch.as_tensor(np.asarray(space.get("start", 0)).ravel()), persistent=False)
        if self.layout.head.continuous:
            for name, end in zip(("low", "high"), bounds(space), strict=True):
                self.register_buffer(name, torch.from_numpy(np.array(end, np.float32)), persistent=False)
        self._flat, self._places = _shared(self, self.layout)
        self.eval()

    def __getstate__(self) -> dict[str, object]:
        """Return what a copy gets, whose tensors lie elsewhere."""
        return {**self.__dict__, "_flat": None, "_places": None}

    def fill(self, flat: np.ndarray, published: np.ndarray) -> None:
        """Put the values of a learner's flat vector ``(n_total,)`` in, and the statistics of a published buffer."""
        layout, held = self.layout, _tensors(self)
        with torch.no_grad():
            for entry in layout.entries:
                values, tensor = torch.from_numpy(np.array(flat[entry.start : entry.stop])), held[entry.name]
                if tensor.shape != entry.shape:
                    tensor.data = tensor.new_empty(entry.shape)
                tensor.copy_(values.view(entry.shape))
        if layout.norm_obs:
            statistics = split_statistics(layout.statistics(published))[0]
            for name, values in (("mean", statistics.mean), ("var", statistics.var)):
                self.register_buffer(name, torch.from_numpy(np.array(values)).to(self.start.device), persistent=False)

    def differs(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the tensors that are not, bit for bit, those of a flat vector ``(n_total,)``; float32 by name."""
        if self._places is not None and self._places == _places(self):
            known = self._flat.numpy().view(np.uint32)
            if np.array_equal(known, flat.view(np.uint32)):
                return {}
        held, found = _tensors(self), dict[str, np.ndarray]()
        for entry in self.layout.entries:
            values = np.asarray(held[entry.name].detach().cpu(), np.float32)
            if values.shape != entry.shape or values.tobytes() != flat[entry.start : entry.stop].tobytes():
                found[entry.name] = values
        return found

    # ------------------------------------------------------------------ what it answers
    def rows(self, obs: Observations) -> Tensor:
        """Return what the layers get for raw observations: normalised or scaled, choices one-hot, keys side by side."""
        form, layout = self._form, self.layout
        if form is None:
            rows = obs if isinstance(obs, Tensor) else torch.as_tensor(obs)
            if not torch.jit.is_tracing() and tuple(rows.shape[1:]) != tuple(self._space["shape"]):
                wanted = f"(B, {', '.join(map(str, self._space['shape']))})"
                raise ValueError(
                    f"a policy takes observations {wanted}, got {tuple(rows.shape)}; obs_to_tensor makes them"
                )
        elif isinstance(obs, Tensor) and obs.shape[1:] == (form.width,):
            rows = obs
        else:
            known = {key: np.asarray(value) for key, value in obs.items()} if isinstance(obs, Mapping) else None
            packed, _ = as_rows(self._space, np.asarray(obs) if known is None else known)
            rows = torch.from_numpy(packed).to(self.start.device)
        if layout.norm_obs and form is not None and form.images:
            n = 4 * form.n_vector
            seen = _normalised(rows[:, :n].contiguous().view(torch.float32), self.mean, self.var)
            return torch.cat((seen.view(torch.uint8), rows[:, n:]), 1)
        if layout.norm_obs:
            return _normalised(rows.flatten(1), self.mean, self.var).view(rows.shape)
        if self._module is None:
            return rows.flatten(1).float() / 255.0 if layout.scaled else rows.flatten(1).float()
        return rows

    def outputs(self, obs: Observations) -> Tensor:
        """Return logits, means or action values ``(B, width)`` for raw observations; see :mod:`drlnb.rl.heads`."""
        rows = self.rows(obs)
        if self._module is not None:
            outputs: Tensor = self._module.actor(rows)
            return outputs
        if self.spec.algo == "dqn":
            return self.q.head(self.q(rows.flatten(1)))
        latent = self.pi(rows.flatten(1))
        outputs = self.action(latent)
        return torch.cat((outputs, latent), 1) if self.layout.head.kind == "sde" else outputs

    def predict_values(self, obs: Observations) -> Tensor:
        """Return values ``(B, 1)`` of raw observations ``(B, *obs)``."""
        if self.spec.algo == "dqn":
            raise AttributeError("a DQN has no predict_values: its action values are q_net(obs)")
        rows = self.rows(obs)
        if self._module is not None:
            return self._module.critic(rows)[:, None]
        return self.value(self.vf(rows.flatten(1)))

    def distribution_of(self, outputs: Tensor) -> Distribution:
        """Return the distribution that outputs ``(B, width)`` mean."""
        return Distribution(self.layout.head, outputs, getattr(self, "log_std", None), self.start)

    def extract_features(self, obs: Observations) -> Tensor:
        """Return what the hidden layers get for raw observations: the extractor's features ``(B, features_dim)``."""
        rows, parts = self.rows(obs), parts_of(self)
        if parts is None or self._module is None:
            return rows
        return parts.features_extractor(self._module._seen(rows))


class ActionValues(nn.Module):
    """The action values of a DQN's policy, whose parameters they share.

    Parameters
    ----------
    policy
        The policy.
    """

    def __init__(self, policy: Network) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, obs: Observations) -> Tensor:
        """Return action values ``(B, A)`` for raw observations ``(B, *obs)``."""
        return self.policy.outputs(obs)

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        """Return what it has of its policy's: ``predict``, ``save``, ``device``, ..."""
        return getattr(self.policy, name) if name in _OF_POLICY else super().__getattr__(name)


def parts_of(network: Network) -> Parts | None:
    """Return the parts of a policy's network; None: a module of the user's own, or action values."""
    if network._module is None and network.spec.algo != "dqn":
        flatten = nn.Flatten()
        return Parts(flatten, flatten, flatten, Latent(network.pi, network.vf), network.action, network.value)
    net = getattr(network, "net", None)
    if not isinstance(net, ExtractorPolicy):
        return None
    of_value = net.features if net.of_value is None else net.of_value
    return Parts(net.features, net.features, of_value, Latent(net.pi, net.vf), net.action, net.value)


def _build_towers(network: Network, towers: str) -> None:
    """Make a dense layer of each weight in a layout, at its name."""
    for tower in towers.split():
        network.add_module(tower, Tower(network.layout.activation))
    for entry in network.layout.entries:
        path, _, last = entry.name.rpartition(".")
        if last == "weight":
            n_out, n_in = entry.shape
            tower, _, layer = path.rpartition(".")
            network.get_submodule(tower).add_module(layer, nn.utils.skip_init(nn.Linear, n_in, n_out))


def _normalised(rows: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return ((rows - mean) / torch.sqrt(var + EPSILON)).clamp(-CLIP, CLIP).float()


def _shared(network: Network, layout: Layout) -> tuple[Tensor, list[int] | None]:
    """Put all parameters into one tensor, where one comparison sees whether any has changed.

    Return it, and where they lie in it; None: something that is trained is no parameter.
    """
    parameters, flat = dict(network.named_parameters()), torch.zeros(layout.n_total)
    for name, place in views(flat, layout).items():
        if name in parameters:
            parameters[name].data = place
    return flat, _places(network) if parameters.keys() == {entry.name for entry in layout.entries} else None


def _tensors(network: Network) -> dict[str, Tensor]:
    """Return all that a layout may name."""
    return {**dict(network.named_buffers()), **dict(network.named_parameters())}


def _places(module: nn.Module) -> list[int]:
    """Return where the parameters of a module and its parts lie; torch's own walk takes five times as long."""
    here = [parameter.data_ptr() for parameter in module._parameters.values() if parameter is not None]
    for part in module._modules.values():
        here += [] if part is None else _places(part)
    return here


class MostLikely(nn.Module):
    """A network's most likely actions, as the environment takes them: what ``predict(deterministic=True)`` returns.

    It knows no action masks.

    Parameters
    ----------
    network
        The network, which it shares.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, obs: Observations) -> Tensor:
        """Return actions ``(B, *action)`` for raw observations ``(B, *obs)``."""
        network, head = self.network, self.network.layout.head
        actions = network.distribution_of(network.outputs(obs)).mode()
        if head.squashed:
            actions = network.low + 0.5 * (actions + 1.0) * (network.high - network.low)
        elif head.continuous:
            actions = torch.minimum(torch.maximum(actions, network.low), network.high)
        return actions.to(network._dtype).reshape(-1, *network._shape)
