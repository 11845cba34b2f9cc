"""Steps of which several members compute a part each, held against a plain PyTorch loop."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from drlnb.records.errors import NonFinite
from drlnb.rl.networks.same_bits import one_thread
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.children.shares.step import apply_gradients, compute_share
from tests.runtime.fit.shared import plain_steps, shared_steps, written

SPLITS = {"one": (512,), "alike": (256, 256), "uneven": (400, 112), "least": (1, 511), "three": (300, 200, 12)}
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def data_of(dtype=torch.float32, n=1024):
    inputs = torch.randn(n, 6, generator=torch.Generator().manual_seed(3), dtype=dtype)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())


def net(dtype=torch.float32):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).to(dtype)


def assert_close(ours, theirs, tolerance):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        assert torch.allclose(ours[name], value, rtol=0.0, atol=tolerance), name


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("split", SPLITS)
def test_shares_are_one_batch(tmp_path, split, dtype):
    """However the samples are dealt; with clipping, which sees the whole gradient, and over two epochs."""
    loss, clip, module, data = nn.functional.mse_loss, 0.05, net(dtype), data_of(dtype)
    spec = written(tmp_path, module, data, loss, max_grad_norm=clip, optimizer=torch.optim.Adam, kwargs={"lr": 0.01})
    wanted = plain_steps(module, data, loss, 4, clip=clip, optimizer=torch.optim.Adam, kwargs={"lr": 0.01})
    ours = shared_steps(spec, SPLITS[split], 4)
    assert_close(ours.module, wanted, TOLERANCE[dtype])
    assert not torch.equal(ours.module[0].weight, module[0].weight)


@pytest.mark.parametrize("chunk", [1, 12, 50])
def test_chunks_are_one_batch(tmp_path, chunk):
    module, data, loss = net(torch.float64), data_of(torch.float64, 48), nn.functional.mse_loss
    spec = written(tmp_path, module, data, loss, batch_size=48)
    assert_close(
        shared_steps(spec, (28, 20), 2, chunk).module, plain_steps(module, data, loss, 2, batch_size=48), 1e-12
    )


def masked(outputs, targets):
    """Return a mean over what is not masked, and how much that is: rows of other members have other numbers of it."""
    counts = targets > -0.5
    return ((outputs - targets) ** 2)[counts].sum() / counts.sum(), counts.sum()


def test_a_masked_loss_counts_by_what_it_was_divided_by(tmp_path):
    """Shares of samples would be wrong: a third is masked, and the order makes the shares differ."""
    module, data = net(torch.float64), data_of(torch.float64)
    spec = written(tmp_path, module, data, masked)
    wanted = plain_steps(module, data, lambda ours, theirs: masked(ours, theirs)[0], 4)
    assert_close(shared_steps(spec, (500, 9, 3), 4).module, wanted, 1e-12)
    assert_close(shared_steps(spec, (512,), 4, chunk=60).module, wanted, 1e-12)


def all_masked(outputs, targets):
    """Count nothing in the first rows of a batch: 0/0 there."""
    counts = torch.zeros_like(targets)
    counts[8:] = 1.0
    return ((outputs - targets) ** 2 * counts).sum() / counts.sum(), counts.sum()


def test_a_share_that_counts_no_sample_adds_nothing(tmp_path):
    """Its loss is 0/0; a step in which nothing counts is refused as one learner's loss would be."""
    module, data = net(torch.float64), data_of(torch.float64, 40)
    spec = written(tmp_path, module, data, all_masked, batch_size=40)
    part = compute_share(FitLearner(spec), 0, 0, 8, 0, lambda: True)
    assert (part.denominator, part.n_done, part.norm_sq) == (0.0, 8, 0.0)
    with pytest.raises(NonFinite, match=r"no sample of step 0 \(epoch 1, samples 0 to 39 of its order\) counts"):
        shared_steps(spec, (8, 8), 1)
    lead = FitLearner(spec)
    lead.begin(1, 1)
    other = compute_share(FitLearner(spec), 0, 8, 32, 0, lambda: True)
    apply_gradients(lead, 0, [part.packed, other.packed], [part.denominator, other.denominator])
    alone = FitLearner(spec)
    alone.begin(1, 1)
    apply_gradients(alone, 0, [other.packed], [other.denominator])
    assert_close(lead.module, alone.module, 0.0)


class Normed(nn.Module):
    """Batch normalisation, in one part frozen; and a parameter that gets a gradient from some samples only."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.BatchNorm1d(8))
        self.body[3].eval()
        self.head, self.unused, self.often = nn.Linear(8, 1), nn.Linear(8, 1), nn.Linear(6, 1)

    def forward(self, inputs):
        outputs = self.head(self.body(inputs))
        return outputs + self.often(inputs) if len(inputs) > 100 else outputs


def test_statistics_of_batches_are_means_over_members(tmp_path):
    """By the law of the running mean: with momentum m it is (1-m) old + m mean of the members' batches."""
    torch.manual_seed(1)
    module, data = Normed().double(), data_of(torch.float64, 512)
    spec = written(tmp_path, module, data, nn.functional.mse_loss)
    lead = shared_steps(spec, (384, 128), 1)
    order = np.random.default_rng((0, 0)).permutation(512)
    hidden = module.body[0](data.tensors[0][order.tolist()])
    mean = 0.1 * hidden.mean(0)
    variance = 0.9 + 0.1 * (384 * hidden[:384].var(0) + 128 * hidden[384:].var(0)) / 512
    normed = lead.module.body[1]
    assert torch.allclose(normed.running_mean, mean, atol=1e-12)
    assert torch.allclose(normed.running_var, variance, atol=1e-12)
    assert normed.num_batches_tracked == 1
    frozen, before = lead.module.body[3].state_dict(), module.body[3].state_dict()
    assert all(torch.equal(frozen[name], before[name]) for name in ("running_mean", "running_var"))


def test_a_parameter_without_a_gradient_keeps_none(tmp_path):
    """As in a plain loop: with weight decay a gradient of zero would change it. Where one member has one it counts."""
    torch.manual_seed(1)
    module, data = Normed().double(), data_of(torch.float64, 512)
    spec = written(tmp_path, module, data, nn.functional.mse_loss, kwargs={"lr": 0.1, "weight_decay": 0.1})
    lead = shared_steps(spec, (500, 12), 1)
    assert torch.equal(lead.module.unused.weight, module.unused.weight)
    alone = shared_steps(spec, (500,), 1)
    start, ours, theirs = module.often.weight, lead.module.often.weight, alone.module.often.weight
    decayed = start * 0.99
    assert torch.allclose(ours - decayed, (theirs - decayed) * 500 / 512, atol=1e-4)
    assert not torch.equal(ours, decayed)


def test_tied_weights_are_one_parameter(tmp_path):
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    module[2].weight = module[0].weight
    data, loss = data_of(torch.float64, 512), nn.functional.mse_loss
    lead = shared_steps(written(tmp_path, module, data, loss), (400, 112), 3)
    assert lead.module[2].weight is lead.module[0].weight
    assert_close(lead.module, plain_steps(module, data, loss, 3), 1e-12)


class Mixed(nn.Module):
    """Parameters of three dtypes, one of them complex; two of them meet in float64."""

    def __init__(self):
        super().__init__()
        self.single = nn.Parameter(torch.linspace(-1.0, 1.0, 6))
        self.wide = nn.Parameter(torch.ones(6, dtype=torch.float64))
        self.twin = nn.Parameter(torch.tensor([1.0 + 2.0j], dtype=torch.complex64))
        self.short = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
        self.register_buffer("mask", torch.tensor([True, False, True, True, True, True]))

    def forward(self, inputs):
        weights = torch.where(self.mask, self.single.double() * self.wide, 0.0)
        return (inputs @ weights)[:, None] * self.twin.abs() + self.short.double()


def test_dtypes_may_be_mixed(tmp_path):
    """Each parameter's gradient travels and is summed in its own dtype, half ones in float32."""
    module, data, loss = Mixed(), data_of(torch.float64, 512), nn.functional.mse_loss
    lead, wanted = (
        shared_steps(written(tmp_path, module, data, loss), (400, 112), 3),
        plain_steps(module, data, loss, 3),
    )
    for name, tolerance in {"single": 1e-6, "wide": 1e-6, "twin": 1e-6, "short": 0.01}.items():
        ours, theirs = getattr(lead.module, name), getattr(wanted, name)
        assert ours.dtype == theirs.dtype
        assert (ours - theirs).abs().max() <= tolerance, name


def thawing(parameters, lr):
    """Train the last two parameters alone for two steps, then all of them."""
    parameters = list(parameters)
    optimizer = torch.optim.SGD(parameters, lr=lr)

    def thaw(optimizer, *_):
        group = optimizer.param_groups[0]
        group["step"] = group.get("step", 0) + 1
        for parameter in group["params"][:-2]:
            parameter.requires_grad_(group["step"] >= 2)

    optimizer.register_step_post_hook(thaw)
    return optimizer


def test_what_an_optimizer_thaws_is_thawed_everywhere(tmp_path):
    """Members never run the optimiser, yet know what is trained."""
    module, data, loss = net(torch.float64), data_of(torch.float64, 512), nn.functional.mse_loss
    for parameter in list(module.parameters())[:-2]:
        parameter.requires_grad_(False)
    wanted = plain_steps(module, data, loss, 5, optimizer=thawing)
    ours = shared_steps(written(tmp_path, module, data, loss, optimizer=thawing), (200, 312), 5)
    assert_close(ours.module, wanted, 1e-12)
    assert not torch.equal(ours.module[0].weight, module[0].weight)


def test_a_share_leaves_nothing_behind(tmp_path):
    """Parameters, buffers, random numbers and gradients are as before, whether it is made or raises in its midst."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    spec = written(tmp_path, module, data_of(n=512), nn.functional.mse_loss)
    ours, theirs = FitLearner(spec), FitLearner(spec)
    before, numbers = ours.state(), torch.get_rng_state()
    first = compute_share(ours, 0, 100, 50, 20, lambda: True)
    with pytest.raises(KeyboardInterrupt):
        compute_share(ours, 0, 100, 50, 20, interrupted)
    facts, buffer = ours.state()
    assert facts == before[0]
    assert (buffer == before[1]).all()
    assert all(parameter.grad is None for parameter in ours.module.parameters())
    assert torch.equal(torch.get_rng_state(), numbers)
    # Whoever computes it draws the same; its neighbour draws something else.
    theirs.begin(1, 3)
    theirs.finish()
    theirs.restore(*before)
    assert (compute_share(theirs, 0, 100, 50, 20, lambda: True).packed == first.packed).all()
    assert (compute_share(theirs, 0, 101, 50, 20, lambda: True).packed != first.packed).any()


def interrupted():
    raise KeyboardInterrupt


def test_a_cut_share_is_the_mean_of_what_is_done(tmp_path):
    """It is cut after two chunks of 100: what it returns is the gradient of 200 samples."""
    spec = written(tmp_path, net(torch.float64), data_of(torch.float64), nn.functional.mse_loss)
    learner, goes_on = FitLearner(spec), iter([True, False])
    part = compute_share(learner, 1, 0, 450, 100, lambda: next(goes_on))
    whole = compute_share(learner, 1, 0, 200, 0, lambda: True)
    assert (part.n_done, part.denominator) == (200, 200.0)
    assert part.loss == pytest.approx(whole.loss, rel=1e-12)
    assert part.norm_sq == pytest.approx(whole.norm_sq, rel=1e-12)


def test_cosines_are_those_of_the_gradients(tmp_path):
    """Of two members, held against autograd on the two parts of the batch."""
    module, data, loss = net(torch.float64), data_of(torch.float64, 512), nn.functional.mse_loss
    lead = FitLearner(written(tmp_path, module, data, loss))
    lead.begin(1, 1)
    parts = [compute_share(lead, 0, first, n, 0, lambda: True) for first, n in ((0, 500), (500, 12))]
    cosines = apply_gradients(lead, 0, [part.packed for part in parts], [part.denominator for part in parts])
    order = torch.from_numpy(np.random.default_rng((0, 0)).permutation(512))
    flat = []
    for rows in (order[:500], order[500:], order):
        inputs, targets = data[rows]
        grads = torch.autograd.grad(loss(module(inputs), targets), list(module.parameters()))
        flat.append(torch.cat([grad.flatten() for grad in grads]))
    wanted = [float(torch.nn.functional.cosine_similarity(part, flat[2], dim=0)) for part in flat[:2]]
    assert cosines == pytest.approx(wanted, abs=1e-12)
    assert [part.norm_sq for part in parts] == pytest.approx([float(part @ part) for part in flat[:2]], rel=1e-12)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 1)
        self.register_buffer("n_calls", torch.zeros(()))

    def forward(self, inputs):
        self.n_calls = self.n_calls + 1
        return self.layer(inputs)


class Averaging(nn.Module):
    """Has a slow copy of its weights, which a forward pass moves as published code does: through `.data`."""

    def __init__(self):
        super().__init__()
        self.layer, self.slow = nn.Linear(6, 1), nn.Linear(6, 1)
        self.slow.requires_grad_(requires_grad=False)

    def forward(self, inputs):
        self.slow.weight.data = 0.9 * self.slow.weight.data + 0.1 * self.layer.weight.data
        return self.layer(inputs)


class Clipping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 1)

    def forward(self, inputs):
        self.layer.weight.data.clamp_(-0.01, 0.01)
        return self.layer(inputs)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 1, sparse=True)

    def forward(self, inputs):
        return self.embedding(inputs[:, :1].long().clamp(0, 9))[:, 0]


def infinite(outputs, targets):
    return (outputs / 0.0).mean()


def odd_denominator(outputs, targets):
    return ((outputs - targets) ** 2).mean(), -1


def steep(outputs, targets):
    """Have a loss of zero whose gradient is infinite."""
    return (outputs * 0.0).abs().sqrt().mean()


PART = r"step 1 \(epoch 2, samples 100 to 149 of its order\)"


@pytest.mark.parametrize(
    ("module", "loss", "said"),
    [
        (
            Counting,
            nn.functional.mse_loss,
            PART + ": a forward pass changes n_calls of the module, .* n_learners=1",
        ),
        (Averaging, nn.functional.mse_loss, PART + ": a forward pass changes slow.weight of the module"),
        (Clipping, nn.functional.mse_loss, PART + ": a forward pass changes layer.weight of the module"),
        (Sparse, nn.functional.mse_loss, PART + ": the gradient of embedding.weight is sparse, .* n_learners=1"),
        (net, infinite, f"loss is -?(inf|nan) at {PART}; update refused"),
        (net, steep, f"the gradient is not finite at {PART}; update refused"),
        (net, odd_denominator, PART + ": beside its mean a loss must return what it was divided by, .* got -1$"),
    ],
)
def test_what_cannot_be_shared_is_said_in_one_line(tmp_path, module, loss, said):
    learner = FitLearner(written(tmp_path, module(), data_of(n=512), loss))
    with pytest.raises((NonFinite, RuntimeError), match="^" + said) as caught:
        compute_share(learner, 1, 100, 50, 0, lambda: True)
    assert "\n" not in str(caught.value)


def test_a_step_that_finds_too_little_memory_at_its_round_s_first_step_changes_nothing(tmp_path):
    """Its executor tries it once more, with the other tasks' models gone."""
    module, data, loss = net(), data_of(n=512), nn.functional.mse_loss
    lead = FitLearner(written(tmp_path, module, data, loss, optimizer=Greedy, kwargs={"lr": 0.1}))
    lead.begin(1, 2)
    for step, error in enumerate((torch.OutOfMemoryError, RuntimeError)):
        part = compute_share(lead, step, 0, 512, 0, lambda: True)
        before = lead.published()
        lead.optimizer.greedy = True
        with pytest.raises(error, match=r"greedy|the optimizer at step 1 .* ran out of memory"):
            apply_gradients(lead, step, [part.packed], [part.denominator])
        if not step:
            assert (lead.published() == before).all()
            apply_gradients(lead, step, [part.packed], [part.denominator])
    assert lead.n_steps == 1


class Greedy(torch.optim.SGD):
    """Finds too little memory in the midst of a step, once."""

    greedy = False

    def step(self, closure=None):
        super().step()
        if self.greedy:
            self.greedy = False
            raise torch.OutOfMemoryError("greedy")


def test_one_learner_takes_the_mean_of_a_loss_that_says_what_it_was_divided_by(tmp_path):
    """Its steps are those of the mean alone, bit by bit; shares then carry on where they end."""
    module, data = net(torch.float64), data_of(torch.float64)
    learner = FitLearner(written(tmp_path, module, data, masked))
    learner.begin(1, 2)
    assert learner.finish()["train/n_updates"] == 2
    assert_close(learner.module, plain_steps(module, data, lambda ours, theirs: masked(ours, theirs)[0], 2), 0.0)


def mean_error(module):
    return {"weight": float(module[0].weight.sum())}


def test_a_round_of_shared_steps_ends_as_any_other(tmp_path):
    """The loss is the mean over its steps, and the module is evaluated as of its last one."""
    module, data = net(torch.float64), data_of(torch.float64)
    spec = written(tmp_path, module, data, nn.functional.mse_loss, evaluate=mean_error)
    lead, alone = shared_steps(spec, (400, 112), 2), FitLearner(spec)
    alone.begin(1, 2)
    ours, theirs = lead.finish(), alone.finish()
    assert ours.keys() == theirs.keys() >= {"eval/weight", "train/loss", "train/n_updates", "train/learning_rate"}
    assert all(ours[name] == pytest.approx(theirs[name], rel=1e-12) for name in ours)
