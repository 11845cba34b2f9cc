"""Define the networks that swapping is measured on: four image classifiers, and policies of reinforcement learning.

The classifiers are those of their papers, for ten classes and without auxiliary heads; each has a stem for large images
and one for 32 x 32.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from drlnb.rl.networks.extractors import impala_layers

__all__ = ["NETS", "alexnet", "impala", "inception_v3", "nature_cnn", "resnet50", "transformer", "vgg16"]

_CLASSES = 10


def _head(width: int) -> list[nn.Module]:
    return [
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(width, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, _CLASSES),
    ]


def alexnet(size: int = 224) -> nn.Module:
    """Return AlexNet in one column (Krizhevsky, arXiv 1404.5997)."""
    large = size > 32
    first = nn.Conv2d(3, 64, 11, 4, 2) if large else nn.Conv2d(3, 64, 3, 2, 1)
    pool, out = (3, 6) if large else (2, 2)
    layers: list[nn.Module] = [first, nn.ReLU(inplace=True), nn.MaxPool2d(pool, 2)]
    layers += [nn.Conv2d(64, 192, *((5, 1, 2) if large else (3, 1, 1))), nn.ReLU(inplace=True), nn.MaxPool2d(pool, 2)]
    for before, after in ((192, 384), (384, 256), (256, 256)):
        layers += [nn.Conv2d(before, after, 3, 1, 1), nn.ReLU(inplace=True)]
    layers += [nn.MaxPool2d(pool, 2), *([nn.AdaptiveAvgPool2d(6)] if large else [])]
    return nn.Sequential(*layers, *_head(256 * out * out))


def vgg16(size: int = 224, *, norm: bool = False) -> nn.Module:
    """Return VGG16 (Simonyan and Zisserman, arXiv 1409.1556), with batch normalisation or without."""
    layers, before = list[nn.Module](), 3
    for width, n in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(n):
            layers += [nn.Conv2d(before, width, 3, 1, 1), *([nn.BatchNorm2d(width)] if norm else [])]
            layers.append(nn.ReLU(inplace=True))
            before = width
        layers.append(nn.MaxPool2d(2, 2))
    side = size // 32
    return (
        nn.Sequential(*layers, *_head(512 * side * side))
        if size > 32
        else nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, _CLASSES))
    )


class _Bottleneck(nn.Module):  # type: ignore[misc]  # torch is skipped
    """Three convolutions beside a shortcut (He et al., arXiv 1512.03385)."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or before != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)


def resnet50(size: int = 224) -> nn.Module:
    """Return ResNet-50."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, *((7, 2, 3) if size > 32 else (3, 1, 1)), bias=False)]
    layers += [nn.BatchNorm2d(64), nn.ReLU(inplace=True), *([nn.MaxPool2d(3, 2, 1)] if size > 32 else [])]
    before = 64
    for width, n, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        blocks = []
        for i in range(n):
            blocks.append(_Bottleneck(before, width, stride if i == 0 else 1))
            before = 4 * width
        layers.append(nn.Sequential(*blocks))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, _CLASSES))


# ------------------------------------------------------------------ Inception
def _conv(before: int, width: int, kernel: int | tuple[int, int], stride: int = 1, *, pad: bool = True) -> nn.Module:
    sides = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (sides[0] // 2, sides[1] // 2) if pad else 0
    return nn.Sequential(
        nn.Conv2d(before, width, sides, stride, padding, bias=False),
        nn.BatchNorm2d(width, eps=0.001),
        nn.ReLU(inplace=True),
    )


class _Branches(nn.Module):  # type: ignore[misc]  # torch is skipped
    """Branches side by side, their channels put together."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _pooled(before: int, width: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), _conv(before, width, 1))


def _inception_a(before: int, pool: int) -> nn.Module:
    return _Branches(
        _conv(before, 64, 1),
        nn.Sequential(_conv(before, 48, 1), _conv(48, 64, 5)),
        nn.Sequential(_conv(before, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3)),
        _pooled(before, pool),
    )


def _inception_c(width: int) -> nn.Module:
    wide, high = (1, 7), (7, 1)
    return _Branches(
        _conv(768, 192, 1),
        nn.Sequential(_conv(768, width, 1), _conv(width, width, wide), _conv(width, 192, high)),
        nn.Sequential(
            _conv(768, width, 1),
            _conv(width, width, high),
            _conv(width, width, wide),
            _conv(width, width, high),
            _conv(width, 192, wide),
        ),
        _pooled(768, 192),
    )


def _inception_e(before: int) -> nn.Module:
    def split(width: int) -> nn.Module:
        return _Branches(_conv(width, 384, (1, 3)), _conv(width, 384, (3, 1)))

    return _Branches(
        _conv(before, 320, 1),
        nn.Sequential(_conv(before, 384, 1), split(384)),
        nn.Sequential(_conv(before, 448, 1), _conv(448, 384, 3), split(384)),
        _pooled(before, 192),
    )


def inception_v3(size: int = 299) -> nn.Module:
    """Return Inception v3 (Szegedy et al., arXiv 1512.00567); small images keep their size through the stem."""
    large = size > 32
    pools: list[nn.Module] = [nn.MaxPool2d(3, 2)] if large else []
    stem = [
        _conv(3, 32, 3, 2 if large else 1, pad=not large),
        _conv(32, 32, 3, pad=not large),
        _conv(32, 64, 3),
        *pools,
    ]
    stem += [_conv(64, 80, 1), _conv(80, 192, 3, pad=not large), *pools]
    reduce_b = _Branches(
        _conv(288, 384, 3, 2, pad=False),
        nn.Sequential(_conv(288, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3, 2, pad=False)),
        nn.MaxPool2d(3, 2),
    )
    reduce_d = _Branches(
        nn.Sequential(_conv(768, 192, 1), _conv(192, 320, 3, 2, pad=False)),
        nn.Sequential(
            _conv(768, 192, 1), _conv(192, 192, (1, 7)), _conv(192, 192, (7, 1)), _conv(192, 192, 3, 2, pad=False)
        ),
        nn.MaxPool2d(3, 2),
    )
    return nn.Sequential(
        *stem,
        *[_inception_a(before, pool) for before, pool in ((192, 32), (256, 64), (288, 64))],
        reduce_b,
        *[_inception_c(width) for width in (128, 160, 160, 192)],
        reduce_d,
        _inception_e(1280),
        _inception_e(2048),
        nn.AdaptiveAvgPool2d(1),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(2048, _CLASSES),
    )


# ------------------------------------------------------------------ policies
def nature_cnn() -> nn.Module:
    """Return the network of Mnih et al. (2015) for four frames of 84 x 84."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, 18),
    )


def impala(scale: int = 1) -> nn.Module:
    """Return the residual network of IMPALA (Espeholt et al., arXiv 1802.01561) for four frames of 84 x 84."""
    layers, width = impala_layers(4, scale)
    return nn.Sequential(*layers, nn.Linear(width * 121, 256), nn.ReLU(), nn.Linear(256, 18))


class _Attention(nn.Module):  # type: ignore[misc]  # torch is skipped
    """One layer of a transformer, normalised first."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self._n_heads = n_heads

    def forward(self, x: Tensor) -> Tensor:
        n, steps, width = x.shape
        heads = self.qkv(self.norm1(x)).view(n, steps, 3, self._n_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, steps, width))
        return x + self.mlp(self.norm2(x))


def transformer(width: int = 512, n_layers: int = 8, n_inputs: int = 64) -> nn.Module:
    """Return a causal transformer over the steps of an episode, with one output for each of 18 actions."""
    layers = [_Attention(width, width // 64) for _ in range(n_layers)]
    return nn.Sequential(nn.Linear(n_inputs, width), *layers, nn.LayerNorm(width), nn.Linear(width, 18))


#: Name -> what makes the network, and the shape of one sample.
NETS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "alexnet_224": (alexnet, (3, 224, 224)),
    "alexnet_32": (lambda: alexnet(32), (3, 32, 32)),
    "vgg16_224": (vgg16, (3, 224, 224)),
    "vgg16_bn_32": (lambda: vgg16(32, norm=True), (3, 32, 32)),
    "resnet50_32": (lambda: resnet50(32), (3, 32, 32)),
    "resnet50_224": (resnet50, (3, 224, 224)),
    "inception_v3_32": (lambda: inception_v3(32), (3, 32, 32)),
    "inception_v3_299": (inception_v3, (3, 299, 299)),
    "impala": (impala, (4, 84, 84)),
    "impala_x4": (lambda: impala(4), (4, 84, 84)),
    "nature_cnn": (nature_cnn, (4, 84, 84)),
    "transformer": (transformer, (256, 64)),
}
