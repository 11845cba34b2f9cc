"""Observations by key beside Stable-Baselines3: its MultiInputPolicy's weights give its outputs and values."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from drlnb.rl.networks.networks import make_networks
from drlnb.rl.rows import as_rows
from tests.rl.test_rows import CAMERA, VECTORS, Keyed, task

pytestmark = pytest.mark.slow


def _their_name(ours: str) -> str:
    """Our entry -> their parameter."""
    for a, b in (("net.features.extractors.key_camera", "features_extractor.extractors.camera"),
                 ("net.action.", "action_net."), ("net.value.", "value_net."), ("action.", "action_net."),
                 ("value.", "value_net."), ("net.pi.", "mlp_extractor.policy_net."),
                 ("net.vf.", "mlp_extractor.value_net.")):  # fmt: skip
        if ours.startswith(a):
            return ours.replace(a, b, 1)
    tower, number, kind = ours.split(".")
    return f"mlp_extractor.{'policy' if tower == 'pi' else 'value'}_net.{2 * int(number)}.{kind}"


@pytest.mark.parametrize("camera", [True, False])
def test_outputs_and_values_equal_stable_baselines3s(camera):
    """Random observations of every kind of key: logits and values to 1e-5 with their weights."""
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")
    from stable_baselines3.common.policies import MultiInputActorCriticPolicy

    # They take no Discrete that begins elsewhere than at 0, and images channels first (a wrapper turns them).
    theirs_space = spaces.Dict({
        **({"camera": spaces.Box(0, 255, (3, 36, 40), np.uint8)} if camera else {}),
        **VECTORS,
        "mode": spaces.Discrete(3),
    })
    torch.manual_seed(0)
    theirs = MultiInputActorCriticPolicy(theirs_space, spaces.Discrete(2), lambda _: 1e-3)
    spec = task(kwargs={"camera": camera})
    networks = make_networks(spec, torch.device("cpu"))
    for entry in networks.layout.entries:
        tensor = theirs.get_parameter(_their_name(entry.name)).detach()
        assert tuple(tensor.shape) == entry.shape
        networks.kept.adam.flat[entry.start : entry.stop] = tensor.ravel()
    rng = np.random.default_rng(1)
    obs: dict[str, Any] = {
        "flags": rng.integers(0, 2, (5, 2)).astype(np.int8),
        "mode": rng.integers(0, 3, 5),
        "pair": np.stack([rng.integers(0, 2, 5), rng.integers(0, 3, 5)], 1),
        "place": rng.normal(size=(5, 2)).astype(np.float32),
    }
    if camera:
        obs["camera"] = rng.integers(0, 256, (5, *CAMERA.shape), np.uint8)
    rows, _ = as_rows(spec.observation_space, {**obs, "mode": obs["mode"] + 1})
    assert set(obs) == set(Keyed(camera)._obs())
    outputs, values = networks.both(torch.from_numpy(networks.rows([rows])))
    tensors = {key: torch.from_numpy(value) for key, value in obs.items()}
    if camera:
        tensors["camera"] = tensors["camera"].permute(0, 3, 1, 2)
    features = theirs.extract_features(tensors)
    latent_pi, latent_vf = theirs.mlp_extractor(features)
    torch.testing.assert_close(outputs, theirs.action_net(latent_pi), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(values, theirs.value_net(latent_vf)[:, 0], rtol=1e-5, atol=1e-5)
