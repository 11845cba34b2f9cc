"""Tensors in one flat buffer: round trips of every kind, and what cannot be packed."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from drlnb.distribution.flat import arrays, bind, layout_of, pack
from drlnb.records.errors import LayoutMismatch
from tests.distribution.at_one_address import arrays_at_one_address, tensors_at_one_address


class Mixed(nn.Module):
    """Tied, zero-size, non-contiguous, scalar and integer tensors, and a normaliser that counts."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(3, 5)
        self.norm = nn.BatchNorm1d(5)
        self.decode = nn.Linear(3, 5, bias=False)
        self.decode.weight = self.encode.weight
        self.nothing = nn.Parameter(torch.empty(0, 3))
        self.turned = nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
        self.brief = nn.Parameter(torch.randn(7).to(torch.bfloat16))
        self.scale = nn.Parameter(torch.tensor(float("nan")))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("spread", torch.ones(1, 1).expand(4, 2))
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, x):
        return self.norm(self.encode(x)) @ self.decode.weight


def equal(a, b):
    """Whether tensors are the same, bit for bit."""
    same = a.shape == b.shape and a.dtype == b.dtype
    return same and a.contiguous().flatten().view(torch.uint8).equal(b.contiguous().flatten().view(torch.uint8))


@pytest.fixture
def module():
    """Make a module with tensors of many kinds, with the same numbers each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Mixed()


def test_a_module_comes_back_bit_for_bit(module):
    """Parameters as views, buffers as copies; in evaluation, without gradients, ties as they were."""
    payload = pack(module)
    other = Mixed()
    with torch.no_grad():
        other.encode.weight.zero_()
    bind(payload, other)
    for (name, tensor), mine in zip(other.state_dict().items(), module.state_dict().values(), strict=True):
        assert equal(tensor, mine), name
    start = payload.ctypes.data
    for tensor in other.parameters():
        assert tensor.numel() == 0 or start <= tensor.data_ptr() < start + len(payload)
        assert not tensor.requires_grad
    assert all(not start <= buffer.data_ptr() < start + len(payload) for buffer in other.buffers())
    assert other.decode.weight is other.encode.weight
    assert not any(part.training for part in other.modules())
    assert pack(other).tobytes() == payload.tobytes()


def test_arrays_are_views_in_order(module):
    """Of the module's own names; tied ones show the same bytes; dtypes that numpy lacks show their bits."""
    payload = pack(module)
    shown = arrays(payload)
    assert list(shown) == list(module.state_dict())
    assert shown["encode.weight"].ctypes.data == shown["decode.weight"].ctypes.data
    np.testing.assert_array_equal(shown["turned"], [[0, 3], [1, 4], [2, 5]])
    assert (shown["brief"].dtype, shown["mask"].dtype) == (np.uint16, np.bool_)
    assert (shown["brief"].astype(np.uint32) << 16).view(np.float32).tolist() == module.brief.float().tolist()
    assert np.isnan(shown["scale"])
    assert shown["nothing"].shape == (0, 3)
    assert shown["norm.num_batches_tracked"] == 0
    assert all(array.ctypes.data % 64 == payload.ctypes.data % 64 for array in shown.values())
    payload.flags.writeable = False
    assert not any(array.flags.writeable for array in arrays(payload).values())


DTYPES = ["float32", "float64", "float16", "int8", "int64", "uint8", "bool", "complex64"]


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=3), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_any_mapping_of_arrays_comes_back(wanted):
    """The same bytes as by tensors, also into memory that was in use; equal layouts have equal fingerprints."""
    rng = np.random.default_rng(0)
    given_arrays = {}
    for name, (dtype, shape, turned) in wanted.items():
        array = rng.integers(0, 2, shape).astype(dtype)
        given_arrays[name] = array.T if turned else array
    payload = pack(given_arrays)
    for name, array in arrays(payload).items():
        np.testing.assert_array_equal(array, given_arrays[name])
        assert array.dtype == given_arrays[name].dtype
    used = np.full(len(payload), 255, np.uint8)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in given_arrays.items()}
    assert pack(tensors, used).tobytes() == payload.tobytes()
    assert layout_of(used) == layout_of(payload) != layout_of(pack({**given_arrays, "one more": np.zeros(1)}))


def test_torch_without_its_private_function_packs_the_same(module, monkeypatch):
    """Tensor by tensor."""
    payload = pack(module)
    monkeypatch.delattr(torch, "_foreach_copy_")
    assert pack(module).tobytes() == payload.tobytes()


@pytest.mark.cluster
def test_reading_needs_no_torch():
    """An actor in numpy starts without it."""
    code = (
        "import sys, numpy as np\nfrom drlnb.distribution.flat import arrays, pack\n"
        "from drlnb.distribution.host_view import HostView\n"
        "assert arrays(pack({'a': np.ones(3)}))['a'].tolist() == [1, 1, 1]\n"
        "assert not {'torch', 'dask', 'distributed'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("make", [tensors_at_one_address, arrays_at_one_address], ids=["tensors", "arrays"])
def test_tensors_at_one_address_keep_their_own_values(make):
    """Whatever makes two of them differ: conjugation, negation, byte order, strides, dtypes, shapes, offsets."""
    tensors, expected = make()
    found = arrays(pack(tensors))
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


class Extra(nn.Module):
    """Keeps extra state, which is made anew each time that it is asked for."""

    def __init__(self, step=1.0, kind=torch.tensor):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.step, self._kind = step, kind

    def get_extra_state(self):
        return self._kind([self.step])

    def set_extra_state(self, state):
        self.step = state.item()


def test_extra_state_of_tensors_is_bound():
    """By the module's own function, in a part of a module, too."""
    source, reader = (nn.Sequential(nn.ReLU(), Extra(step)) for step in (5.0, 7.0))
    bind(pack(source), reader)
    assert reader[1].step == 5.0
    assert reader[1].layer.weight.equal(source[1].layer.weight)


class Tied(nn.Module):
    """Has a buffer that shows a parameter's memory, and two buffers with one memory."""

    def __init__(self, ties=True):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))
        self.register_buffer("shown", self.weight.data if ties else torch.arange(3.0))
        memory = torch.zeros(2)
        self.register_buffer("first", memory)
        self.register_buffer("second", memory[:] if ties else torch.zeros(2))


@pytest.mark.parametrize("ties", [True, False])
def test_a_module_is_bound_to_version_after_version(ties):
    """Also where different tensors of it have, or had, one memory, and where the reader's have none in common."""
    source, reader = Tied(), Tied(ties)
    for version in range(3):
        with torch.no_grad():
            source.weight += version
            source.first += version
        bind(pack(source), reader)
        for name, tensor in reader.state_dict().items():
            assert tensor.equal(source.state_dict()[name]), (version, name)


def test_one_tensor_of_the_reader_cannot_be_two_of_the_payload():
    """Which of them it would show is anybody's guess."""
    source, reader = (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in "ab")
    reader[1].weight = reader[0].weight
    with pytest.raises(LayoutMismatch, match=r"have '1.weight' float32 \(2, 2\), .* '1.weight' .* tied to '0.weight'"):
        bind(pack(source), reader)


class Renamed(nn.Linear):
    """Saves something that it has not."""

    def state_dict(self, *args, **options):
        return {"twice": 2 * self.weight}


def test_what_is_no_tensor_of_the_module_cannot_be_bound():
    """Nothing would come of it, and nobody would hear of that."""
    with pytest.raises(ValueError, match="'twice' is no parameter or buffer of Renamed: read it by arrays"):
        bind(pack(Renamed(2, 2)), Renamed(2, 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_bound():
    """It has no `requires_grad_` of its own."""
    source, reader = (torch.jit.script(nn.Linear(2, 2)) for _ in "ab")
    bind(pack(source), reader)
    assert reader.weight.equal(source.weight)
    assert not reader.weight.requires_grad


class Wrapped(torch.Tensor):
    """Has no memory, as quantised, masked, sharded and fake tensors are made."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3,))

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


def emptied():
    """Return a tensor whose memory was given back."""
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda: nn.ReLU(), "ReLU has no tensors"),
        (dict, "dict has no tensors"),
        (lambda: None, "a module or a mapping of tensors by name can be packed, got NoneType"),
        (lambda: [torch.ones(1)], "a module or a mapping of tensors by name can be packed, got list"),
        (lambda: {1: torch.ones(1)}, "tensors must have texts for names, got 1"),
        (lambda: {"a": torch.eye(2).to_sparse()}, r"tensor 'a' is nested or sparse \(torch.sparse_coo\)"),
        (lambda: {"q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)}, "tensor 'q' is quantised"),
        (lambda: nn.Linear(2, 2, device="meta"), "tensor 'weight' is on the meta device"),
        (lambda: nn.LazyLinear(2), "tensor 'weight' is not initialised"),
        (
            lambda: Extra(1.0, set),
            "'_extra_state' must be a tensor as all others, got set, as get_extra_state returns it",
        ),
        (lambda: nn.Sequential(Extra(1.0, set)), "'0._extra_state' must be a tensor as all others, got set"),
        (
            lambda: {"a": Wrapped()},
            "tensor 'a' is a Wrapped, whose values are not its memory's, which cannot be packed",
        ),
        (lambda: {"gone": emptied()}, "tensor 'gone' is without memory"),
        (lambda: {"a": torch._efficientzerotensor(3)}, "tensor 'a' is without memory"),
        (lambda: {"a": torch.empty(2, dtype=torch.uint4)}, "tensor 'a' has dtype uint4, which cannot be packed"),
        (lambda: {"a": torch.nested.nested_tensor([torch.ones(1)])}, "tensor 'a' is nested or sparse"),
        (lambda: {"a": np.ma.array([1.0, 2.0], mask=[0, 1])}, "tensor 'a' is masked"),
        (lambda: {"a": np.zeros(2, [("x", "f4")])}, "tensor 'a' is of dtype void32"),
        (lambda: {"a": torch.ones(1), "b": np.ones(1)}, "'b' must be a tensor as all others, got ndarray"),
        (lambda: {"o": np.array([None])}, "tensor 'o' is of dtype object, which cannot be packed"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_packed_is_named(source, message):
    """In one line."""
    with pytest.raises(ValueError, match=message):
        pack(source())


def test_memory_that_does_not_fit_is_refused():
    """Too small, or not to be written."""
    with pytest.raises(ValueError, match="out must be 192 bytes that may be written, got 3"):
        pack({"a": np.ones(1)}, bytearray(3))
    with pytest.raises(ValueError, match="out must be 192 bytes that may be written, got 192"):
        pack({"a": np.ones(1)}, bytes(192))


def test_what_is_no_payload_is_refused():
    """Nothing of it is executed or trusted: a layout that does not belong to its fingerprint, a dtype of objects."""
    payload = pack({"a": np.ones(3)}).tobytes()
    assert layout_of(payload).n_bytes == 192
    for broken in (b"", bytes(200), payload[:100], payload.replace(b"float64", b"float32")):
        with pytest.raises(ValueError, match="are no flat payload"):
            arrays(broken)
    with pytest.raises(ValueError, match="a payload of this layout has 192 bytes, got 191"):
        arrays(payload[:-1])
    text = b'[["a","object",[1],null]]'
    with pytest.raises(ValueError, match="are no flat payload"):
        arrays((payload[:8] + len(text).to_bytes(8, "little") + payload[16:64] + text).ljust(192, b"\0"))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Linear(3, 4), r"have 'weight' float32 \(5, 3\), Linear has 'weight' float32 \(4, 3\)"),
        (nn.Linear(3, 5).double(), r"'weight' float32 \(5, 3\), Linear has 'weight' float64 \(5, 3\)"),
        (nn.Linear(3, 5, bias=False), r"have 'bias' float32 \(5,\), Linear has no more"),
        (nn.Sequential(nn.Linear(3, 5)), r"'weight' float32 \(5, 3\), Sequential has '0.weight'"),
    ],
)
def test_a_module_that_does_not_fit_is_told_the_first_difference(other, message):
    """And stays as it is."""
    before = pack(other).tobytes()
    with pytest.raises(LayoutMismatch, match=message):
        bind(pack(nn.Linear(3, 5)), other)
    assert pack(other).tobytes() == before
    with pytest.raises(LayoutMismatch, match=r"have no more, Linear has 'bias'"):
        bind(pack(nn.Linear(3, 5, bias=False)), nn.Linear(3, 5))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_packed_on_the_device_is_packed_on_the_cpu(module):
    """Bit for bit, into new memory and into given memory."""
    payload = pack(module)
    module.cuda()
    assert pack(module).tobytes() == payload.tobytes()
    assert pack(module, np.full(len(payload), 255, np.uint8)).tobytes() == payload.tobytes()
