"""Record what a training step saves and how long its parts take, and make a profile of it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import torch

from drlnb.planning.swapping.profile import Affine, RowKey, SavedRow, SwapBlock, SwapLink, SwapProfile, Tick
from drlnb.runtime.swapping.attribution import Attribution, Call
from drlnb.runtime.swapping.derive import Recipes
from drlnb.runtime.swapping.memory import DevicePeak
from drlnb.runtime.swapping.saved import Handle, Saved, storage_of
from drlnb.runtime.swapping.squeeze import KINDS, left_frac, nodes, plane_of, tensors_in
from drlnb.runtime.swapping.tape import Tape
from drlnb.runtime.swapping.tiers.base import Tier
from drlnb.runtime.swapping.torch_private import StorageRef, graph_task, operation, storage_number

__all__ = ["Recorded", "Recording", "Recordings", "link_of", "profile_of"]

#: A block is worth to be run again if that many storages go.
_BLOCK_ROWS = 2
#: Copies are measured at this rate until the first one was made.
_UNKNOWN_BYTES_PER_S = 1e9
#: Seconds of each tick, forward and backward, and its transient bytes, forward and backward.
Columns = tuple[list[float], list[float], list[float], list[float]]


@dataclass(slots=True)
class _Row:
    """What was seen of one storage."""

    layer_type: str
    n_bytes: int
    itemsize: int
    storage: int
    born_tick: int
    ticks: list[int] = field(default_factory=list)
    #: Classes of the modules that packed it, in small letters: conv2d, linear.
    consumers: dict[str, None] = field(default_factory=dict)
    #: Name of each handle's operation, where it is one that takes less.
    kinds: dict[int, str] = field(default_factory=dict)
    #: Share of its bytes that these leave.
    left_frac: float = 0.0
    handles: set[int] = field(default_factory=set)
    source: RowKey | None = None
    free_tick: int = -1

    @property
    def squeeze_kind(self) -> str:
        """The form that will do for all its handles; empty: none."""
        kinds = set(self.kinds.values())
        if len(self.kinds) < len(self.handles) or not (kinds <= {"mask", "void"} or kinds == {"narrow"}):
            return ""
        return "mask" if "mask" in kinds else next(iter(kinds))


@dataclass(slots=True)
class _Block:
    """What was seen of one submodule."""

    first_tick: int
    last_tick: int
    #: Number of each input's storage -> its bytes.
    inputs: dict[int, int]
    n_calls: int
    again: bool  # called with tensors, and it gives something


def _storages(value: object) -> list[torch.UntypedStorage]:
    """Return the storages of the tensors in what a module takes or returns, but for those that have none."""
    return [each for tensor in tensors_in(value) if (each := storage_of(tensor)) is not None]


class Recording:
    """Watches one training step.

    Parameters
    ----------
    tape, attribution, recipes
        What the step is made with.
    peak
        Knows the most bytes on the device beside what stays anyway and saved storages.
    """

    def __init__(self, tape: Tape, attribution: Attribution, recipes: Recipes, peak: DevicePeak) -> None:
        self._tape, self._attribution, self._recipes = tape, attribution, recipes
        self._peak, self._forward_bytes = peak, list[float]()
        self.rows: dict[RowKey, _Row] = {}
        self.blocks: dict[str, _Block] = {}
        self._made: dict[int, int] = {}  # number of a storage -> tick of the call that returned it
        self._refs: list[object] = []  # while these live, no other storage gets such a number
        self._first: dict[int, int] = {}  # calls that have not returned: the tick at which they began
        self._ends_s = [self._tape.meter.now()]
        self._operation: int | None = None  # that saves in the present tick
        self._needs: list[tuple[float, RowKey, float]] = []

    def _transient_bytes(self) -> float:
        self._tape.meter.compare()
        return self._peak.beyond()

    @property
    def _tick(self) -> int:
        return len(self._ends_s) - 1

    def _turn(self) -> int:
        """End a tick; return its number."""
        self._ends_s.append(self._tape.meter.now())
        self._forward_bytes.append(self._transient_bytes())
        self._operation = None
        return self._tick - 1

    def entered(self, call: Call) -> None:
        """Record a call that begins: what was saved before it is of another tick."""
        if self._operation is not None:
            self._turn()
        self._first[id(call)] = self._tick

    def left(self, call: Call, output: object) -> None:
        """Record a call that has ended: the end of a tick."""
        tick = self._turn()
        first = self._first.pop(id(call), tick)
        for storage in _storages(output):
            self._made[storage_number(storage)] = tick
            self._refs.append(StorageRef(storage))
        for node in nodes(output):
            for name, kind in KINDS.get(node.name(), {}).items():
                read = self._tape.handle_of(node, name)
                if read is not None and read.saved.key in self.rows:
                    row = self.rows[read.saved.key]
                    row.kinds[id(read)] = kind
                    row.left_frac = max(row.left_frac, left_frac(kind, row.itemsize, plane_of(self._tape, node)))
        if call.path and call.module is not None:
            storages = _storages(call.inputs)
            self._refs += map(StorageRef, storages)
            inputs = {storage_number(each): each.nbytes() for each in storages}
            block = self.blocks.setdefault(call.path, _Block(first, tick, inputs, 0, True))
            block.n_calls += 1
            block.again = block.again and any(True for _ in tensors_in(call.inputs)) and output is not None

    def packed(self, handle: Handle, tensor: torch.Tensor) -> None:
        """Record a saved tensor; the operations of one call have a tick each, as their rows are not needed at once."""
        if graph_task() != -1:
            return
        if self._operation not in {None, operation()}:
            self._turn()
        self._operation = operation()
        saved, tick = handle.saved, self._tick
        if saved.key not in self.rows:
            born = min(self._made.get(saved.number, tick), tick)
            self.rows[saved.key] = _Row(saved.layer_type, saved.n_bytes, tensor.element_size(), saved.number, born)
        row = self.rows[saved.key]
        row.handles.add(id(handle))
        row.ticks.append(tick)
        row.consumers.setdefault(type(self._attribution.call.module).__name__.lower())

    def parting(self, saved: Saved) -> None:
        """Record what a storage can be computed from, and that callers have held it until now."""
        if saved.key in self.rows:
            row, begins = self.rows[saved.key], self._operation in {None, operation()}
            row.source, row.free_tick = self._recipes.source_of(saved), self._tick - begins

    def unpacked(self, saved: Saved) -> None:
        """Record that a storage is needed for the first time."""
        self._needs.append((self._tape.meter.now(), saved.key, self._transient_bytes()))

    def input_bytes(self, path: str, inside: Collection[RowKey]) -> int:
        """Return the bytes of a block's inputs that no row holds but those within it."""
        kept = {row.storage for key, row in self.rows.items() if key not in inside}
        return sum(n_bytes for storage, n_bytes in self.blocks[path].inputs.items() if storage not in kept)

    def ticks(self) -> Columns:
        """Return the seconds of each tick, forward and backward, waits for copies left out; and transient bytes."""
        now_s, n_ticks = self._tape.meter.now(), len(self._ends_s)
        began_s = self._needs[0][0] if self._needs else now_s
        forward_s = [max(b - a, 0.0) for a, b in zip(self._ends_s, [*self._ends_s[1:], began_s], strict=True)]
        backward_s, backward_bytes = [0.0] * n_ticks, [0.0] * n_ticks
        needs = [each for each in self._needs if each[1] in self.rows]
        last = (now_s, ("", 0), self._transient_bytes())
        for (at_s, key, _), (next_s, _, n_bytes) in pairwise([*needs, last]):
            i = min(self.rows[key].ticks[-1], n_ticks - 1)
            backward_s[i] += max(next_s - at_s, 0.0)
            backward_bytes[i] = max(backward_bytes[i], n_bytes)
        turn_bytes = self._needs[0][2] if self._needs else last[2]
        return forward_s, backward_s, [*self._forward_bytes, turn_bytes], backward_bytes


#: What was recorded, and its :meth:`Recording.ticks` at the end of the step.
Recorded = tuple[Recording, Columns]
#: Number of samples -> what was recorded of it, step by step.
Recordings = Mapping[int, Sequence[Recorded]]


def _usual(recorded: Sequence[Recorded]) -> Columns:
    """Return the last step's columns, the seconds of each tick the median of all steps that had as many."""
    last = recorded[-1][1]
    alike = [columns for _, columns in recorded if len(columns[0]) == len(last[0])]
    forward_s, backward_s = ([median(each) for each in zip(*[c[k] for c in alike], strict=True)] for k in (0, 1))
    return forward_s, backward_s, last[2], last[3]


def _line(values: Sequence[float], samples: Sequence[int]) -> Affine:
    """Return (a, b) of a + b B through the values at one or two numbers of samples, neither below zero."""
    if len(values) == 1 or samples[0] == samples[-1]:
        return 0.0, values[-1] / samples[-1]
    slope = (values[-1] - values[0]) / (samples[-1] - samples[0])
    slope = min(max(slope, 0.0), values[-1] / samples[-1])
    return values[-1] - slope * samples[-1], slope


def profile_of(
    recordings: Recordings,
    *,
    link: SwapLink,
    device_kind: str,
    shape_key: str,
    fixed_bytes: float,
    others: Collection[RowKey] = (),
) -> SwapProfile:
    """Make a profile of recorded steps of one or two batch sizes.

    Parameters
    ----------
    recordings
        Number of samples -> what was recorded, and its :meth:`Recording.ticks` at the step's end, of each step.
    link, device_kind, shape_key, fixed_bytes
        As in the profile.
    others
        Storages that no plan moves.

    Raises
    ------
    ValueError
        If the steps saved different storages.
    """
    samples = sorted(recordings)
    seen = [recordings[n][-1][0] for n in samples]
    last = seen[-1]
    if any(each.rows.keys() - last.rows.keys() for each in seen):
        raise ValueError(f"steps of {' and '.join(map(str, samples))} samples save different tensors")
    times = [_usual(recordings[n]) for n in samples]
    n_ticks = min(len(each[0]) for each in times)
    lines = [[_line([each[k][i] for each in times], samples) for i in range(n_ticks)] for k in range(4)]
    ticks = [
        Tick(forward_s=a, backward_s=b, forward_transient_bytes=c, backward_transient_bytes=d)
        for a, b, c, d in zip(*lines, strict=True)
    ]
    rows = [
        _row(
            key, [(n, each.rows[key]) for n, each in zip(samples, seen, strict=True) if key in each.rows], ticks, others
        )
        for key in last.rows
        if key not in others
    ]
    return SwapProfile(
        device_kind=device_kind,
        torch_version=torch.__version__,
        shape_key=shape_key,
        rows=tuple(rows),
        ticks=tuple(ticks),
        blocks=tuple(_blocks(samples, seen, rows)),
        link=link,
        fixed_bytes=fixed_bytes,
    )


def _row(key: RowKey, seen: Sequence[tuple[int, _Row]], ticks: Sequence[Tick], others: Collection[RowKey]) -> SavedRow:
    row = seen[-1][1]
    source = None if row.source in others else row.source
    fixed, per_sample = _line([each.n_bytes for _, each in seen], [n for n, _ in seen])
    kind, n_ticks = row.squeeze_kind, len(ticks)
    packed = tuple(sorted({min(tick, n_ticks - 1) for tick in row.ticks}))
    made = ticks[max(row.born_tick - 1, 0) : row.born_tick + 1]
    return SavedRow(
        key=key,
        layer_type=row.layer_type,
        bytes_per_sample=per_sample,
        bytes_fixed=fixed,
        born_tick=min(row.born_tick, packed[0]),
        packed_ticks=packed,
        free_tick=min(row.free_tick, n_ticks - 1),
        consumers=tuple(row.consumers),
        squeeze_kind=kind,
        squeeze_left_frac=row.left_frac if kind else 1.0,
        derive_from=source,
        derive_s_per_sample=sum(tick.forward_s[1] for tick in made) if source else 0.0,
    )


def _blocks(samples: Sequence[int], seen: Sequence[Recording], rows: Sequence[SavedRow]) -> list[SwapBlock]:
    blocks = []
    for path, block in seen[-1].blocks.items():
        span = (block.first_tick, block.last_tick)
        inside = [row.key for row in rows if span[0] <= row.born_tick and row.packed_ticks[-1] <= span[1]]
        if block.again and block.n_calls == 1 and len(inside) >= _BLOCK_ROWS:
            given = _line([each.input_bytes(path, inside) for each in seen], samples)
            blocks.append(
                SwapBlock(path=path, first_tick=span[0], last_tick=span[1], rows=tuple(inside), input_bytes=given)
            )
    return blocks


def link_of(tier: Tier) -> SwapLink:
    """Return the rates of a tier, as measured by its copies so far."""
    d2h, h2d = (
        ((0, 1 / rate.s_per_byte if rate.s_per_byte else _UNKNOWN_BYTES_PER_S),) for rate in (tier.out, tier.back)
    )
    return SwapLink(d2h=d2h, h2d=h2d, d2h_both=d2h, h2d_both=h2d)
