"""What a traced module saves: storages once, who made and who reads them, and what they can be derived from."""

import pytest
import torch
from torch import nn

from drlnb.planning.swapping.profile import SwapPlan
from drlnb.planning.swapping.trace import analytic
from drlnb.runtime.swapping.trace import squeezed, trace


def rows_of(module, *shape, dtype=torch.float32):
    """Return a trace and its rows by name."""
    traced = trace(module, torch.empty(shape, dtype=dtype))
    return traced, {row.name: row for row in traced.rows}


class Residual(nn.Module):
    """A convolution and its input, added, then a ReLU."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


def net():
    first = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)]
    return nn.Sequential(*first, Residual(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5))


def test_a_storage_is_one_row_however_often_it_is_saved():
    """The ReLU's result is saved by itself and by the convolution behind it (trap 10)."""
    traced, rows = rows_of(net(), 1, 3, 8, 8)
    assert list(rows) == ["0#0", "1#0", "2#0", "3.norm#0", "3#0", "4#0", "6#0"]
    assert rows["2#0"].consumers == ("relu", "conv2d")
    assert [traced.ops[i].name for i in rows["2#0"].packed_ticks] == ["relu", "conv2d"]
    assert rows["2#0"].bytes_per_sample == 4 * 64 * 4
    assert sum(row.bytes_per_sample for row in traced.rows) == 4 * (3 * 64 + 4 * 64 * 4 + 64 * 2 + 64)


def test_parameters_and_statistics_are_no_rows():
    """Nor is what does not grow with the batch."""
    traced, _ = rows_of(net(), 1, 3, 8, 8)
    assert traced.param_bytes == sum(each.numel() * 4 for each in net().parameters())
    assert all(row.bytes_fixed == 0.0 for row in traced.rows)


def test_layers_are_named_by_the_module_on_top():
    """What a module does itself has its name and the operation's."""
    _, rows = rows_of(net(), 1, 3, 8, 8)
    kinds = [row.layer_type for row in rows.values()]
    assert kinds == ["Conv2d", "BatchNorm2d", "ReLU", "BatchNorm2d", "Residual/relu", "MaxPool2d", "Linear"]


def test_a_row_is_born_where_it_is_made():
    """The input before everything; a result in place of another one where that was made; indices by their pooling."""
    traced, rows = rows_of(net(), 1, 3, 8, 8)
    names = [op.name for op in traced.ops]
    assert names == ["conv2d", "batch_norm", "relu", "conv2d", "batch_norm", "add", "relu", "max_pool2d", "linear"]
    born = {name: row.born_tick for name, row in rows.items()}
    assert born == {"0#0": -1, "1#0": 0, "2#0": 1, "3.norm#0": 3, "3#0": 6, "4#0": 7, "6#0": 7}


def test_what_normalisation_and_relu_made_can_be_made_again():
    """From the convolution's result; a sum cannot, nor can a convolution."""
    traced, rows = rows_of(net(), 1, 3, 8, 8)
    sources = {name: row.derive_from for name, row in rows.items() if row.derive_from}
    assert sources == {"2#0": ("1", 0)}
    assert [[traced.ops[i].name for i in ops] for ops in traced.derive_ops if ops] == [["batch_norm", "relu"]]


def test_a_chain_is_derived_from_as_far_back_as_may_be():
    """Three operations, not four."""
    chain = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.ReLU(), nn.GELU(), nn.GELU(), nn.GELU())
    traced, rows = rows_of(chain, 1, 4)
    assert [row.derive_from for row in rows.values()] == [None, None, ("1", 0), ("1", 0), ("2", 0)]
    assert [len(ops) for ops in traced.derive_ops] == [0, 0, 2, 3, 2]


@pytest.mark.parametrize(
    ("consumers", "dtype", "of_relu", "plane", "answer"),
    [
        (("max_pool2d",), torch.float32, False, 0, ("void", 0.0)),
        (("max_pool2d",), torch.float32, True, 0, ("void", 0.0)),
        (("relu", "max_pool2d"), torch.float32, True, 0, ("mask", 1 / 32)),
        (("relu",), torch.bfloat16, True, 0, ("mask", 1 / 16)),
        (("relu",), torch.float32, False, 0, ("", 1.0)),
        (("relu", "conv2d"), torch.float32, True, 0, ("", 1.0)),
        (("max_pool2d",), torch.int64, False, 181 * 181, ("narrow", 0.25)),
        (("max_pool2d",), torch.int64, False, 256 * 256, ("narrow", 0.5)),
    ],
)
def test_what_can_be_kept_in_fewer_bytes(consumers, dtype, of_relu, plane, answer):
    """By who reads it, never by luck: a convolution needs all of it."""
    assert squeezed(consumers, dtype, of_relu=of_relu, plane=plane) == answer


def test_indices_know_the_plane_that_they_point_into():
    """Eight by eight fits into sixteen bits, three hundred by three hundred does not."""
    for size, left in ((8, 0.25), (300, 0.5)):
        _, rows = rows_of(nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2)), 1, 1, size, size)
        assert (rows["1#1"].squeeze_kind, rows["1#1"].squeeze_left_frac) == ("narrow", left)
        assert rows["1#0"].squeeze_kind == "void"


def test_a_block_holds_what_is_made_and_saved_within_it():
    """The module that is called twice is none, nor is one that saves a single storage."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.once = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.GELU())
            self.twice = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.GELU())

        def forward(self, x):
            return self.twice(self.twice(self.once(x)))

    traced, _ = rows_of(Twice(), 1, 4)
    (block,) = traced.blocks
    assert block.path == "once"
    assert block.rows == (("once.1", 0), ("once.2", 0), ("once.3", 0))
    assert [traced.ops[i].name for i in (block.first_tick, block.last_tick)] == ["linear", "gelu"]


def test_operations_count_what_they_compute_and_move():
    """A linear layer of 4 x 5: 40 operations and 36 bytes per sample, 100 bytes of parameters."""
    traced, _ = rows_of(nn.Linear(4, 5), 1, 4)
    (op,) = traced.ops
    assert (op.name, op.flops, op.in_bytes, op.out_bytes, op.param_bytes) == ("linear", 40.0, 16.0, 20.0, 100.0)
    assert (op.transient_bytes, op.gradient_bytes) == (20.0, 20.0), "the input is saved and needs no gradient"


def test_the_module_is_not_touched():
    """Its parameters stay where they are, its statistics are not moved, no hook stays behind."""
    module = net()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    one, two = (trace(module, torch.empty(4, 3, 8, 8)) for _ in range(2))
    assert one == two
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())
    assert all(each.device.type == "cpu" for each in module.parameters())
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks


def test_an_error_in_the_forward_pass_leaves_no_hook():
    """It is the module's own."""
    with pytest.raises(RuntimeError, match="reduction dim"):
        trace(nn.Sequential(nn.Linear(3, 3)), torch.empty(1, 4))
    assert not torch.nn.modules.module._global_forward_hooks


def test_a_trace_becomes_a_profile():
    """With a plan for its rows."""
    traced, _ = rows_of(net(), 1, 3, 8, 8)
    profile = analytic(traced, "2080ti", 16)
    assert SwapPlan.keeping(profile).problem(profile) == ""
    assert profile.shape_key == "Sequential 3x8x8"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((None, torch.zeros(2, 4)), "trace takes a torch.nn.Module, got None"),
        ((nn.Linear(4, 2),), "tensors with the batch first, got none"),
        ((nn.Linear(4, 2), {"obs": torch.zeros(2, 4)}), "tensors with the batch first, got dict"),
        ((nn.Linear(4, 2), torch.tensor(1.0)), "tensors with the batch first, got Tensor"),
    ],
)
def test_what_cannot_be_traced_is_told(given, said):
    """In one line, instead of what fails deep inside."""
    with pytest.raises(TypeError, match=said):
        trace(*given)
