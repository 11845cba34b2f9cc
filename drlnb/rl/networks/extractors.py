"""Extract the features that a policy and a value function share, under Stable-Baselines3's names."""

import gymnasium
import torch
from gymnasium.spaces.utils import flatdim
from torch import Tensor, nn

from drlnb.records.errors import ConfigError

__all__ = ["NAMED", "CombinedExtractor", "ImpalaCNN", "NatureCNN", "impala_layers"]


class NatureCNN(nn.Module):
    """The network of Mnih et al. 2015: convolutions 32 8/4, 64 4/2, 64 3/1, then `features_dim` units, all ReLU.

    Parameters
    ----------
    observation_space
        Channels first.
    features_dim
        Width of the last layer.
    """

    def __init__(self, observation_space: gymnasium.spaces.Box, features_dim: int = 512) -> None:
        super().__init__()
        self.features_dim = features_dim
        channels, *size = observation_space.shape
        self.cnn = nn.Sequential(
            nn.Conv2d(channels, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        if min(size) < 36:
            raise ConfigError(f"convolutions need images of at least 36 x 36 pixels, got {size[0]} x {size[1]}")
        with torch.no_grad():
            width = self.cnn(torch.zeros(1, channels, *size)).shape[1]
        self.linear = nn.Sequential(nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        """Return features ``(B, features_dim)`` of images ``(B, C, H, W)``."""
        return self.linear(self.cnn(obs))


class _Residual(nn.Module):
    """Two convolutions on top of their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(torch.relu(self.conv1(torch.relu(x))))


def impala_layers(channels: int, scale: int = 1) -> tuple[list[nn.Module], int]:
    """Return the residual layers of IMPALA's large network (Espeholt et al., arXiv 1802.01561), and their width."""
    layers, before = list[nn.Module](), channels
    for width in (16 * scale, 32 * scale, 32 * scale):
        layers += [nn.Conv2d(before, width, 3, 1, 1), nn.MaxPool2d(3, 2, 1), _Residual(width), _Residual(width)]
        before = width
    return [*layers, nn.ReLU(), nn.Flatten()], before


class ImpalaCNN(nn.Module):
    """The residual network of IMPALA, then `features_dim` units with ReLU; it saves ten times what NatureCNN does.

    Parameters
    ----------
    observation_space
        Channels first.
    features_dim
        Width of the last layer.
    scale
        Factor on the widths of the convolutions.
    """

    def __init__(self, observation_space: gymnasium.spaces.Box, features_dim: int = 256, scale: int = 1) -> None:
        super().__init__()
        self.features_dim = features_dim
        channels, *size = observation_space.shape
        layers, width = impala_layers(channels, scale)
        self.cnn = nn.Sequential(*layers)
        height, wide = (-(-side // 8) for side in size)  # halved three times, rounded up
        self.linear = nn.Sequential(nn.Linear(width * height * wide, features_dim), nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        """Return features ``(B, features_dim)`` of images ``(B, C, H, W)``."""
        return self.linear(self.cnn(obs))


class CombinedExtractor(nn.Module):
    """Features of a dictionary: convolutions for each image, the other keys flattened, all side by side.

    Parameters
    ----------
    observation_space
        Images channels first.
    cnn_output_dim
        Features of each image.
    normalized_image
        Images are floats already: boxes of three axes get convolutions whatever their type and bounds.
    """

    def __init__(
        self, observation_space: gymnasium.spaces.Dict, cnn_output_dim: int = 256, normalized_image: bool = False
    ) -> None:
        super().__init__()
        extractors: dict[str, nn.Module] = {}
        self.features_dim = 0
        for key, space in observation_space.items():
            if isinstance(space, gymnasium.spaces.Box) and _has_pixels(space, normalized_image):
                extractors[key] = _named(key, space, cnn_output_dim)
                self.features_dim += cnn_output_dim
            else:
                extractors[key] = nn.Flatten()
                self.features_dim += flatdim(space)
        self._keys = tuple(extractors)
        #: In the order of the space; a module's name holds no dot.
        self.extractors = nn.ModuleDict({_safe(key): module for key, module in extractors.items()})

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        """Return features ``(B, features_dim)`` of tensors by key, one-hot where the key holds choices."""
        return torch.cat([self.extractors[_safe(key)](obs[key]) for key in self._keys], dim=1)


#: Those of images that settings name.
NAMED = {"NatureCNN": NatureCNN, "ImpalaCNN": ImpalaCNN}


def _has_pixels(space: gymnasium.spaces.Box, normalized_image: bool) -> bool:
    if len(space.shape) != 3:
        return False
    return normalized_image or bool(space.dtype == "uint8" and (space.low == 0).all() and (space.high == 255).all())


def _named(key: str, space: gymnasium.spaces.Box, width: int) -> NatureCNN:
    try:
        return NatureCNN(space, width)
    except ConfigError as error:
        raise ConfigError(f"observation {key!r}: {error}") from None


def _safe(key: str) -> str:
    return "key_" + key.replace(".", "_dot_")
