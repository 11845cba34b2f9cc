"""Each dtype of parameters and buffers: it trains as in the plain loop, or is refused in one line."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from drlnb.fleet.fit import fit
from drlnb.records.errors import ConfigError
from drlnb.runtime.children.shares.packed import load_parameters, pack_parameters
from drlnb.runtime.children.shares.step import compute_share
from tests.fleet.fit import work
from tests.fleet.fit.work import ADAM, EPOCH, Door, learner, make
from tests.runtime.fit.shared import plain_steps, shared_steps, written

CROSS_ENTROPY = nn.functional.cross_entropy


def odd(made):
    """Return what torch warns of when it is made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made()


class Complex(nn.Module):
    """Computes with complex numbers; the second layer's are those that the loss sees the size of."""

    def __init__(self, kind):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.layers = odd(lambda: nn.Sequential(nn.Linear(10, 6), nn.Linear(6, 2)).to(kind))
        self.register_buffer("turn", torch.tensor(1j, dtype=kind))
        self.register_buffer("passing", torch.tensor([2j, 1.0], dtype=kind), persistent=False)

    def forward(self, inputs):
        return (self.layers(inputs.to(self.turn.dtype)) * self.turn + self.passing).abs()


def equal(ours, theirs):
    """Compare bytes: those of NaN, and of what torch cannot compare, too."""
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    return [each.detach().reshape(-1).view(torch.uint8).tolist() for each in (ours, theirs)]


@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128])
def test_complex_parameters_are_those_of_the_plain_loop(begin, kind):
    """Bit by bit, with Adam, also if another process goes on in the midst; and the trained module is loaded."""
    module, task = Complex(kind), begin(Complex(kind))
    first, second = learner(begin, task), learner(begin, task)
    make(first, 5)
    second.restore(*first.state())
    make(second, task.total_timesteps)
    wanted = work.plain_loop(module, work.table(), CROSS_ENTROPY, torch.optim.Adam, **ADAM)
    for name, value in wanted.state_dict().items():
        ours, theirs = equal(second.module.state_dict()[name], value)
        assert ours == theirs, name
    assert not torch.equal(wanted.layers[0].weight, module.layers[0].weight)


@pytest.mark.parametrize(("kind", "tolerance"), [(torch.complex64, 1e-5), (torch.complex128, 1e-13)])
def test_two_learners_train_complex_parameters_as_one_does(tmp_path, kind, tolerance):
    spec = written(tmp_path, Complex(kind), work.table(), CROSS_ENTROPY, batch_size=70)
    ours, wanted = (
        shared_steps(spec, (50, 20), 5).module,
        plain_steps(Complex(kind), work.table(), CROSS_ENTROPY, 5, batch_size=70),
    )
    for name, value in wanted.named_parameters():
        assert (dict(ours.named_parameters())[name] - value).abs().max() < tolerance, name


def extra(value):
    module = nn.Sequential(nn.Linear(10, 2))
    module.register_buffer("extra", value)
    return module


NAMES = (
    *("float16", "bfloat16", "float64", "complex32", "complex64", "complex128", "bool", "int8", "int16", "int32"),
    *("int64", "uint8", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"),
    "float8_e5m2fnuz",
)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_parameter", [False, True], ids=["buffer", "frozen parameter"])
def test_what_is_not_trained_keeps_its_bytes_in_any_dtype(begin, name, is_parameter):
    """Through the pickle, a saved state, and what a member gets."""
    value = torch.tensor([0.0, 1.0, 1.5, 240.0]).to(getattr(torch, name))
    module = nn.Sequential(nn.Linear(10, 2))
    if is_parameter:
        module.register_parameter("extra", nn.Parameter(value, requires_grad=False))
    else:
        module.register_buffer("extra", value)
    task = begin(module, optimizer=torch.optim.SGD, n_learners=2)
    first, second = learner(begin, task), learner(begin, task)
    make(first, 2)
    second.restore(*first.state())
    load_parameters(second.module, pack_parameters(first.module, first.as_made))
    compute_share(second, 2, 0, 5, 0, lambda: True)
    for each in (first, second):
        ours, theirs = equal(each.module.extra, value)
        assert ours == theirs


def test_a_mask_may_be_a_frozen_parameter(begin):
    """What nobody trains need not be finite."""
    mask = nn.Parameter(torch.tensor([float("-inf"), 0.0]), requires_grad=False)
    module = nn.Sequential(nn.Linear(10, 2))
    module.register_parameter("mask", mask)
    trained = learner(begin, begin(module, optimizer=torch.optim.SGD))
    make(trained, EPOCH)
    assert torch.equal(trained.module.mask, mask)


@pytest.mark.parametrize(
    "value",
    [torch.zeros(0), torch.zeros(2, 0, dtype=torch.int64), torch.tensor([float("nan")]), None],
    ids=["empty", "without columns", "nan", "none"],
)
def test_buffers_of_odd_shapes_go_through_shares(begin, value):
    task = begin(extra(value), n_learners=2)
    one, other = learner(begin, task), learner(begin, task)
    load_parameters(other.module, pack_parameters(one.module, one.as_made))
    assert compute_share(other, 0, 0, 5, 0, lambda: True).n_done == 5


def test_a_view_that_is_conjugated_is_written_as_it_is(begin):
    conjugated = torch.tensor([1j, 2.0], dtype=torch.complex64).conj()
    task = begin(extra(conjugated), n_learners=2)
    one, other = learner(begin, task), learner(begin, task)
    other.restore(*one.state())
    load_parameters(other.module, pack_parameters(one.module, one.as_made))
    assert other.module.extra.tolist() == [-1j, 2.0]


class Keeping(nn.Linear):
    """Has state that is no tensor."""

    def get_extra_state(self):
        return {"n": 1}

    def set_extra_state(self, state):
        pass


class Unbuilt(nn.Linear):
    def __setstate__(self, state):
        raise ValueError("no more")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            extra(odd(lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8))),
            "extra of module cannot be saved (torch.quint8, torch.strided): let it be a dense tensor of its own",
        ),
        (
            extra(torch.eye(3).to_sparse()),
            "extra of module cannot be saved (torch.float32, torch.sparse_coo): let it be",
        ),
        (
            extra(odd(lambda: torch.eye(3).to_sparse_csr())),
            "extra of module cannot be saved (torch.float32, torch.sparse_csr): let",
        ),
        (extra(torch.ones(1).expand(3)), "extra of module cannot be saved (torch.float32, torch.strided): let it be a"),
        (extra(torch.zeros(3).to(torch.float8_e8m0fnu)), "extra of module cannot be saved (torch.float8_e8m0fnu, "),
        (Keeping(10, 2), "_extra_state of module cannot be saved (dict): let it be a dense tensor of its own"),
        (Unbuilt(10, 2), "module or loss cannot be rebuilt: ValueError: no more"),
    ],
)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("n_learners", [1, 2])
def test_what_cannot_be_saved_is_named_before_anything_is_made(module, said, n_learners):
    door = Door()
    with pytest.raises(ConfigError) as caught:
        fit(door, module, work.table(), CROSS_ENTROPY, torch.optim.SGD, **ADAM, n_learners=n_learners)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert not door.begun


class Weighted(nn.Module):
    """A loss that holds weights."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weights", torch.ones(1).expand(2))

    def forward(self, ours, theirs):
        return CROSS_ENTROPY(ours, theirs, weight=self.weights.contiguous())


def test_what_a_loss_holds_is_saved_too():
    with pytest.raises(ConfigError, match=r"^weights of loss cannot be saved \(torch.float32, torch.strided\): let it"):
        fit(Door(), work.net(), work.table(), Weighted(), torch.optim.SGD, **ADAM)


class Tokens(Dataset):
    """Texts as many keep them: in 16 bits without a sign."""

    def __init__(self):
        self.tokens = torch.arange(74).to(torch.uint16)

    def __len__(self):
        return 70

    def __getitem__(self, index):
        return self.tokens[index : index + 4].long(), self.tokens[index + 4].long()


def test_a_data_set_may_hold_unsigned_numbers(begin):
    module = nn.Sequential(nn.Embedding(74, 8), nn.Flatten(), nn.Linear(32, 74))
    task = begin(module, Tokens(), optimizer=torch.optim.SGD, **{**ADAM, "n_epochs": 1})
    trained = learner(begin, task)
    make(trained, EPOCH)
    wanted = work.plain_loop(copy.deepcopy(module), Tokens(), CROSS_ENTROPY, torch.optim.SGD, **{**ADAM, "n_epochs": 1})
    work.assert_same(trained, wanted)
