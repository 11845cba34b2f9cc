"""Steps of modules and operations that are found in many networks."""

import importlib
import shutil

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, weight_norm
from torch.nn.utils import spectral_norm as spectral_norm_by_hook

from tests.runtime.swapping.matrix.steps import Made, Residual, mlp, ordinary, sgd, training


class Lambda(nn.Module):
    """A function with parameters."""

    def __init__(self, run, **parts) -> None:
        super().__init__()
        self.run = run
        for name, each in parts.items():
            setattr(self, name, each)

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)


def _on(net, *shape, **kinds):
    x = torch.randn(*shape, **kinds)
    return training(net, lambda i: net(x + i))


@ordinary
def tied_weights():
    def run(self, ids):
        return functional.linear(self.body(self.embed(ids)), self.embed.weight)

    net = Lambda(run, embed=nn.Embedding(20, 8), body=Residual())
    ids = torch.randint(20, (4, 5))
    return training(net, lambda i: net((ids + i) % 20))


@ordinary
def sparse_embeddings():
    net, ids = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), mlp(16, 8, 3)), torch.randint(50, (6, 2))
    dense, sparse = sgd(net[2]), torch.optim.SparseAdam(net[0].parameters())

    def step(i):
        dense.zero_grad()
        sparse.zero_grad()
        loss = net((ids + i) % 50).square().mean()
        loss.backward()
        dense.step()
        sparse.step()
        return loss

    return Made(net, step)


@ordinary
def sparse_buffers():
    def run(self, x):
        return self.head(torch.sparse.mm(self.near, self.one(x)))

    net = Lambda(run, one=Residual(), head=nn.Linear(8, 3))
    net.register_buffer("near", torch.eye(6).to_sparse())
    return _on(net, 6, 8)


@ordinary
def bags_of_embeddings():
    net, ids = nn.Sequential(nn.EmbeddingBag(30, 8), mlp(8, 8, 3)), torch.randint(30, (6, 4))
    return training(net, lambda i: net((ids + i) % 30))


@ordinary
def weight_norms():
    return _on(nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 3)), 4, 8)


@ordinary
def weight_norms_by_hook():
    return _on(nn.Sequential(nn.Sequential(weight_norm(nn.Linear(8, 8)), nn.Tanh()), nn.Linear(8, 3)), 4, 8)


@ordinary
def spectral_norms():
    return _on(nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 3)), 4, 8)


@ordinary
def spectral_norms_by_hook():
    return _on(nn.Sequential(nn.Sequential(spectral_norm_by_hook(nn.Linear(8, 8)), nn.Tanh()), nn.Linear(8, 3)), 4, 8)


@ordinary
def parametrised():
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), parametrizations.orthogonal(nn.Linear(8, 8)), nn.Linear(8, 3))
    parametrize.register_parametrization(net[0], "weight", Symmetric())
    return _on(net, 4, 8)


@ordinary
def autocast():
    net, x = nn.Sequential(Residual(), Residual(), nn.Linear(8, 3)), torch.randn(4, 8)

    def forward(i):
        with torch.autocast(x.device.type, torch.bfloat16):
            return net(x + i)

    return training(net, lambda i: forward(i).float())


@ordinary
def half_precision():
    return _on(nn.Sequential(Residual(), nn.Linear(8, 3)).bfloat16(), 4, 8, dtype=torch.bfloat16)


def _images(net, **kinds):
    x = torch.randn(2, 3, 12, 12).to(**kinds)
    return training(net.to(**kinds), lambda i: net(x + i))


def _convs():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.Flatten()
    )


@ordinary
def convolutions():
    return _images(_convs())


@ordinary
def channels_last():
    return _images(_convs(), memory_format=torch.channels_last)


@ordinary
def up_and_down():
    """Transposed convolutions, group and instance norms, shuffles, resampling: a small U-net."""

    def run(self, x):
        down = self.down(x)
        up = torch.cat([self.up(down), x], 1)
        grid = functional.affine_grid(torch.eye(2, 3).expand(2, 2, 3), up.shape, align_corners=False)
        up = functional.grid_sample(functional.interpolate(up, scale_factor=2), grid, align_corners=False)
        return functional.pixel_unshuffle(functional.pad(up, (1, 1, 1, 1), "reflect"), 2)

    down = nn.Sequential(nn.Conv2d(3, 4, 4, 2, 1), nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(1))
    up = nn.Sequential(nn.ConvTranspose2d(4, 3, 4, 2, 1), nn.InstanceNorm2d(3, track_running_stats=True), nn.ELU())
    return _images(Lambda(run, down=down, up=up))


@ordinary
def other_convolutions():
    net = nn.Sequential(
        nn.Conv1d(4, 8, 3, padding="same", groups=2, dilation=2), nn.PReLU(), nn.BatchNorm1d(8, momentum=None),
        nn.AdaptiveMaxPool1d(4), nn.Unflatten(1, (2, 4)), nn.Conv3d(1, 2, 2) if False else nn.Conv2d(2, 2, 2),
        nn.LocalResponseNorm(2), nn.LPPool2d(2, 2),
    )  # fmt: skip
    return _on(net, 3, 4, 9)


@ordinary
def batch_statistics_toggled():
    net, x = nn.Sequential(_convs(), nn.Linear(36, 3)), torch.randn(2, 3, 12, 12)

    def forward(i):
        net.train(i % 2 == 0)
        if i % 3 == 0:
            with torch.no_grad():
                net(x - i)
        return net(x + i)

    return training(net, forward)


@ordinary
def frozen_backbone():
    net, x = nn.Sequential(_convs(), nn.Linear(36, 3)), torch.randn(2, 3, 12, 12)
    net[0].requires_grad_(False).eval()
    return training(net, lambda i: net(x + i))


@ordinary
def thawed_later():
    net, x = nn.Sequential(Residual(), Residual(), nn.Linear(8, 3)), torch.randn(4, 8)
    net[0].requires_grad_(False)
    optimiser = torch.optim.SGD(net.parameters(), 0.05)

    def step(i):
        net[0].requires_grad_(i > 5)
        optimiser.zero_grad()
        loss = net(x + i).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    return Made(net, step)


@ordinary
def dropouts():
    return _on(nn.Sequential(mlp(8, 16, 8), nn.Dropout(0.3), nn.AlphaDropout(0.2), nn.Linear(8, 3), nn.RReLU()), 4, 8)


@ordinary
def shared_module():
    part = Residual()
    return _on(nn.Sequential(part, nn.Tanh(), part, nn.Sequential(part, nn.Linear(8, 3))), 4, 8)


@ordinary
def nested_lists():
    def run(self, x):
        return sum(self.parts[name][k](x) for name in ("a", "b") for k in range(2))

    parts = nn.ModuleDict({name: nn.ModuleList([Residual(), mlp(8, 8, 8)]) for name in ("a", "b")})
    return _on(Lambda(run, parts=parts), 4, 8)


@ordinary
def attention():
    def run(self, x):
        y, weights = self.attend(x, x, x, need_weights=True)
        return torch.cat([self.head(x + y).flatten(), weights.flatten()])

    return _on(Lambda(run, attend=nn.MultiheadAttention(8, 2, 0.1, batch_first=True), head=mlp(8, 8, 3)), 2, 5, 8)


@ordinary
def scaled_dot_products():
    def run(self, x):
        q, k, v = self.qkv(x).view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    return _on(Lambda(run, qkv=nn.Linear(8, 24), out=nn.Linear(8, 8)), 2, 6, 8)


@ordinary
def encoder_and_decoder():
    """Layers that are called by keywords, with masks."""
    net = nn.Transformer(8, 2, 1, 2, 16, dropout=0.1, batch_first=True)
    x, mask = torch.randn(2, 5, 8), nn.Transformer.generate_square_subsequent_mask(5)
    return training(net, lambda i: net(src=x + i, tgt=x - i, tgt_mask=mask, tgt_is_causal=True))


@ordinary
def observations_by_name():
    def run(self, obs):
        return self.head(torch.cat([self.eye(obs["image"]), obs["vector"]], 1))

    net = Lambda(run, eye=_convs(), head=mlp(36 + 5, 16, 3))
    image, vector = torch.randn(2, 3, 12, 12), torch.randn(2, 5)
    return training(net, lambda i: net(obs={"image": image + i, "vector": vector * i}))


@ordinary
def complex_numbers():
    def run(self, x):
        seen = torch.fft.rfft(self.one(x)) * self.filter
        return torch.cat(
            [torch.fft.irfft(seen, 8), seen.abs(), seen.conj().imag, torch.view_as_real(seen).flatten(1)], 1
        )

    filters = nn.Parameter(torch.randn(5, dtype=torch.complex64))
    return _on(Lambda(run, one=Residual(), filter=filters), 4, 8)


@ordinary
def linear_algebra():
    def run(self, x):
        square = self.one(x).tanh().view(-1, 8, 8)
        square = square @ square.mT + 3 * torch.eye(8)
        low, inverse = torch.linalg.cholesky(square), torch.linalg.inv(square)
        return torch.cat([low.flatten(), inverse.flatten(), torch.linalg.svdvals(square).flatten(),
                          torch.linalg.slogdet(square)[1].flatten(),
                          torch.cdist(square[0], square[1]).flatten()])  # fmt: skip

    return _on(Lambda(run, one=Residual(64)), 2, 64)


@ordinary
def indices_and_orders():
    def run(self, x):
        y = self.one(x)
        top, where = y.topk(3, 1)
        parts = [top, y.gather(1, where), y.scatter_add(1, where, top), y.sort(1)[0], y.cumsum(1), y.cumprod(1)[:, :2],
                 y.masked_fill(y > 0, 0.1), torch.where(y > 0, y, y.exp()), y.index_select(1, where[0]), y.roll(1, 1),
                 y.index_put((torch.tensor([0, 1]), torch.tensor([2, 3])), y[0, :2]), y.logsumexp(1, keepdim=True),
                 torch.einsum("bi,bj->bij", y, y).flatten(1), y.unfold(1, 3, 2).flatten(1),
                 y.median(1, keepdim=True)[0]]  # fmt: skip
        return torch.cat(parts, 1)

    return _on(Lambda(run, one=Residual()), 4, 8)


@ordinary
def parts_in_place():
    """Chunks and splits that share bytes and are written for themselves; views that are written through."""

    def run(self, x):
        a, b = self.one(x).unsafe_chunk(2, 1)
        c, d = self.other(x).unsafe_split(8, 1)
        a, b, c, d = a.sigmoid_(), b.tanh_(), c.exp_(), d.mul_(2)
        y = a * b * c * d
        z = y.clone()
        z[:, ::2] += y[:, 1::2].sin()
        z.view(-1)[3:5].fill_(1)
        return functional.relu_(z.add_(y).t_().t())

    return _on(Lambda(run, one=nn.Linear(8, 16), other=nn.Linear(8, 16)), 4, 8)


class Cube(torch.autograd.Function):
    """x ** 3, which keeps one tensor for itself."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, x.square())
        ctx.apart = x.sin()
        return x**3

    @staticmethod
    def backward(ctx, grad):
        x, square = ctx.saved_tensors
        return grad * (3 * square + 0 * x + 0 * ctx.apart)


class Rounded(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


@ordinary
def own_functions():
    def run(self, x):
        soft = functional.gumbel_softmax(self.one(x), hard=True)
        return self.other(Cube.apply(self.one(x)) + Rounded.apply(x) + soft)

    return _on(Lambda(run, one=Residual(), other=Residual()), 4, 8)


@ordinary
def labelled_sequences():
    net, x = mlp(8, 16, 5), torch.randn(7, 2, 8)

    def forward(i):
        said = functional.log_softmax(net(x + i), 2)
        return functional.ctc_loss(
            said, torch.tensor([[1, 2, 3], [2, 2, 4]]), torch.tensor([7, 6]), torch.tensor([3, 2])
        )

    return training(net, forward)


@ordinary
def scripted_part():
    net = nn.Sequential(Residual(), torch.jit.trace(mlp(8, 8, 8), torch.randn(4, 8)), nn.Linear(8, 3))
    return _on(net, 4, 8)


def _compiled(backend):
    torch.compiler.reset()
    net, x = nn.Sequential(Residual(), Residual(), nn.Linear(8, 3)), torch.randn(4, 8)
    quick = torch.compile(lambda y: functional.gelu(y).sin() + net[1](y), backend=backend, fullgraph=True)
    return training(net, lambda i: net[2](quick(net[0](x + i))))


@ordinary
def compiled_function_captured():
    """Run what a compiler sees, without the code that it makes."""
    return _compiled("aot_eager")


@ordinary
def compiled_function():
    if shutil.which("g++") is None:
        pytest.skip("there is no compiler for what torch.compile makes")
    inductor = importlib.import_module("torch._inductor.config")
    made = _compiled("inductor")

    def step(i):
        with inductor.patch(compile_threads=1):  # or processes and threads stay behind
            return made.step(i)

    return Made(made.net, step)


@ordinary
def filled_later():
    """Layers whose sizes come with the first input."""
    net, x = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(3)), torch.randn(4, 8)

    def step(i):
        net.zero_grad()
        loss = net(x + i).square().mean()
        loss.backward()
        with torch.no_grad():
            for each in net.parameters():
                each -= 0.05 * each.grad
        return loss

    return Made(net, step)


@ordinary
def other_types():
    """Use a subclass of tensors."""
    net, x = nn.Sequential(Residual(), nn.Linear(8, 3)), torch.randn(4, 8)

    class Named(torch.Tensor):
        pass

    return training(net, lambda i: net((x + i).as_subclass(Named)).as_subclass(torch.Tensor))
