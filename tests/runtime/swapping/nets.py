"""Build small nets and make training steps of them, plain or under a swapper; compare gradients bit by bit."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Two convolutions with batch normalisation around which the input goes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x
        return functional.relu(y)


class Attention(nn.Module):
    """A pre-norm transformer block: q, k and v are views of one storage; dropout draws random numbers."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


def residual_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), Residual(8), Residual(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    layers = [nn.Linear(3 * 32 * 32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


def transformer() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(2), nn.Linear(1024, 32), Attention(32), Attention(32), nn.Flatten(), nn.Linear(96, 10)
    )


#: Name -> its maker; each takes images of shape ``(n, 3, 32, 32)`` and gives ``(n, 10)``.
NETS: dict[str, Callable[[], nn.Module]] = {"residual": residual_net, "mlp": mlp, "transformer": transformer}


def made(name: str, seed: int = 0, **kinds) -> nn.Module:
    torch.manual_seed(seed)
    return NETS[name]().to(**kinds)


def images(n: int = 2, seed: int = 1, **kinds) -> torch.Tensor:
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed)).to(**kinds)


def plain_step(net: nn.Module, x: torch.Tensor, autocast: bool = False) -> None:
    """Compute a loss and its gradients."""
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        out = net(x)
    functional.cross_entropy(out.float().flatten(1), torch.arange(len(x)) % 10).backward()


def state(net: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of gradients and buffers."""
    grads = {f"{name}.grad": each.grad for name, each in net.named_parameters() if each.grad is not None}
    return {name: each.detach().clone() for name, each in {**grads, **dict(net.named_buffers())}.items()}


def differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    """Return the names whose bits differ."""
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(_bits(one[name]), _bits(other[name]))]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)
