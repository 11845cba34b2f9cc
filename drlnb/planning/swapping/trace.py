"""Make a profile without hardware: the operations of a traced network, timed by a roofline."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from drlnb.planning.codec import from_plain, to_plain
from drlnb.planning.swapping.profile import Affine, SavedRow, SwapBlock, SwapLink, SwapProfile, Tick

__all__ = ["DEVICES", "GIB", "Device", "Op", "SwapTrace", "analytic", "packed", "unpacked"]

#: Bytes of a gibibyte.
GIB = 2**30
#: Seconds of one launch of a kernel; parameters, their gradients and the optimiser's momentum.
_LAUNCH_S, _COPIES = 6e-6, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation of the forward pass; all but the parameters' bytes are per sample."""

    name: str
    flops: float
    in_bytes: float
    out_bytes: float
    param_bytes: float
    #: Of inputs and outputs that no backward pass needs.
    transient_bytes: float
    #: Of the gradients of outputs and inputs.
    gradient_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapTrace:
    """What one forward pass of a network does and saves, whatever the device."""

    shape_key: str
    param_bytes: float
    ops: tuple[Op, ...]
    #: Their times are left out.
    rows: tuple[SavedRow, ...]
    #: Of each row, the operations that make it again from the row that it is derived from.
    derive_ops: tuple[tuple[int, ...], ...]
    blocks: tuple[SwapBlock, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a roofline knows of a device."""

    flops_per_s: float
    bytes_per_s: float
    #: To and from the host.
    link_bytes_per_s: float
    memory_bytes: float = 11 * GIB
    context_bytes: float = 0.7 * GIB


#: Name -> a device: three fifths of its peak rate and about as much of its memory's; the second one's rate is assumed.
DEVICES: Mapping[str, Device] = {
    "2080ti": Device(flops_per_s=8.0e12, bytes_per_s=431e9, link_bytes_per_s=11.5e9),
    "h200_tf32": Device(flops_per_s=67e12, bytes_per_s=3.1e12, link_bytes_per_s=50e9),
}


def analytic(trace: SwapTrace, device: str, n_samples: int) -> SwapProfile:
    """Return the profile of a traced network on a device, exact near one batch size.

    Parameters
    ----------
    trace
        The network.
    device
        Name of one of :data:`DEVICES`.
    n_samples
        Batch size: it decides which roof, arithmetic or memory, each operation meets.

    References
    ----------
    Ours: the roofline of Williams, Waterman and Patterson (2009), a constant per launch, and a backward pass of twice
    the arithmetic.
    """
    card = DEVICES[device]
    ticks = [_tick(op, card, n_samples) for op in trace.ops]
    rows = [
        replace(row, derive_s_per_sample=sum(_again_s(trace.ops[i], card, n_samples) for i in ops))
        for row, ops in zip(trace.rows, trace.derive_ops, strict=True)
    ]
    return SwapProfile(
        device_kind=device,
        shape_key=trace.shape_key,
        rows=tuple(rows),
        ticks=tuple(ticks),
        blocks=trace.blocks,
        link=SwapLink.of(card.link_bytes_per_s),
        fixed_bytes=card.context_bytes + _COPIES * trace.param_bytes,
    )


def _tick(op: Op, card: Device, n_samples: int) -> Tick:
    moved, back = op.in_bytes + op.out_bytes, 2 * op.in_bytes + op.out_bytes
    launches = 2 if op.flops else 1
    return Tick(
        forward_s=_roof(op.flops, moved, op.param_bytes, card, n_samples, 1),
        backward_s=_roof(2 * op.flops, back, 3 * op.param_bytes, card, n_samples, launches),
        forward_transient_bytes=(0.0, op.transient_bytes),
        backward_transient_bytes=(0.0, op.gradient_bytes),
    )


def _roof(flops: float, moved: float, fixed: float, card: Device, n_samples: int, launches: int) -> Affine:
    arithmetic, memory = flops / card.flops_per_s, moved / card.bytes_per_s
    held = fixed / card.bytes_per_s
    if arithmetic * n_samples >= memory * n_samples + held:
        return launches * _LAUNCH_S, arithmetic
    return launches * _LAUNCH_S + held, memory


def _again_s(op: Op, card: Device, n_samples: int) -> float:
    return _LAUNCH_S / n_samples + (op.in_bytes + op.out_bytes) / card.bytes_per_s


# ------------------------------------------------------------------ files
def packed(trace: SwapTrace) -> str:
    """Return a trace as compact JSON: operations and rows by column."""
    plain = to_plain(trace)
    for name in ("ops", "rows", "blocks"):
        plain[name] = {key: [each[key] for each in plain[name]] for key in (plain[name][0] if plain[name] else ())}
    return json.dumps(plain, separators=(",", ":"))


def unpacked(text: str) -> SwapTrace:
    """Return the trace that :func:`packed` has written."""
    plain = json.loads(text)
    for name in ("ops", "rows", "blocks"):
        columns = plain[name]
        plain[name] = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return from_plain(SwapTrace, plain)
