"""Describe what a training step saves for its backward pass, how long its parts take, and plans for what is saved.

A *row* is one storage that autograd keeps, however many saved tensors share it.  A *tick* is one operation of the
forward pass and its counterpart in the backward pass.  Numbers that depend on the batch are pairs (a, b): a + b B for B
samples.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from typing import Final, Literal, Self, TypeVar, cast

from drlnb.planning.codec import from_plain, to_plain
from drlnb.records import base
from drlnb.records.base import Facts

__all__ = [
    "ACTIONS",
    "BLOCK",
    "DERIVE",
    "KEEP",
    "SQUEEZE",
    "SWAP",
    "Action",
    "Affine",
    "Rates",
    "RowKey",
    "SavedRow",
    "SwapBlock",
    "SwapLink",
    "SwapPlan",
    "SwapProfile",
    "Tick",
    "facts",
    "read",
    "written",
]

#: What is done with a row: it stays; a smaller form of it stays; it is computed again from another row; it goes to the
#: tier and comes back; the forward pass of the block around it is made again.
Action = Literal["keep", "squeeze", "derive", "swap", "block"]
KEEP: Final = "keep"  #: The row stays on the device.
SQUEEZE: Final = "squeeze"  #: A smaller form of it stays.
DERIVE: Final = "derive"  #: It is computed again from another row.
SWAP: Final = "swap"  #: It goes to the tier and comes back.
BLOCK: Final = "block"  #: The forward pass of the block around it is made again.
#: All of them.
ACTIONS: Final = (KEEP, SQUEEZE, DERIVE, SWAP, BLOCK)
#: Path of the module that saved a storage first, and which one of that module's it is.
RowKey = tuple[str, int]
#: (a, b) of a + b B.
Affine = tuple[float, float]
#: (size of a copy in bytes, bytes per second) of each size that was measured, ascending.
Rates = tuple[tuple[int, float], ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRow:
    """One storage that autograd keeps for the backward pass."""

    key: RowKey
    #: Class of the module on top of the stack when it was packed first; ``Enclosing/op`` where no leaf made it.
    layer_type: str
    bytes_per_sample: float
    bytes_fixed: float = 0.0
    #: Tick whose operation made it; -1: it is an input of the step.
    born_tick: int
    #: Ticks that packed it, ascending: it is needed from the backward tick of the last one to that of the first.
    packed_ticks: tuple[int, ...]
    #: Tick after which nobody but autograd has it, so that it can leave; -1: that of the last pack.
    free_tick: int = -1
    #: Names of the operations that packed it.
    consumers: tuple[str, ...] = ()
    #: ``void`` (its values are never read), ``narrow`` (integers), ``mask`` (one bit each); empty: none is exact.
    squeeze_kind: str = ""
    #: Share of its bytes that is left then.
    squeeze_left_frac: float = 1.0
    #: Row that it can be computed from; None: none.
    derive_from: RowKey | None = None
    derive_s_per_sample: float = 0.0

    @property
    def name(self) -> str:
        """Its key as one word."""
        path, ordinal = self.key
        return f"{path}#{ordinal}"

    @property
    def actions(self) -> tuple[Action, ...]:
        """What can be done with it outside of blocks."""
        exact: dict[Action, bool] = {SQUEEZE: bool(self.squeeze_kind), DERIVE: self.derive_from is not None}
        return (KEEP, SWAP, *[action for action, holds in exact.items() if holds])

    def bytes(self, n_samples: int) -> float:
        """Return its size."""
        return self.bytes_fixed + self.bytes_per_sample * n_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One operation, forward and backward; transient bytes are those beside the rows."""

    forward_s: Affine
    backward_s: Affine
    forward_transient_bytes: Affine = (0.0, 0.0)
    backward_transient_bytes: Affine = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapBlock:
    """A submodule whose forward pass can be made again instead of keeping what it saved."""

    path: str
    first_tick: int
    last_tick: int
    #: Keys of the rows that are made and packed within it.
    rows: tuple[RowKey, ...]
    #: Inputs that no row holds: where it is made again they stay until then.
    input_bytes: Affine = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapLink:
    """Rates of copies from the device (d2h) and to it (h2d), each alone and while the other one goes on."""

    d2h: Rates
    h2d: Rates
    d2h_both: Rates
    h2d_both: Rates

    @classmethod
    def of(cls, bytes_per_s: float) -> Self:
        """Return a link of one rate."""
        rates = ((0, bytes_per_s),)
        return cls(d2h=rates, h2d=rates, d2h_both=rates, h2d_both=rates)

    def changed(self, rate: Callable[[float], float]) -> Self:
        """Return a link of which each rate is what a function makes of it."""
        rates = {each.name: tuple([(n, rate(was)) for n, was in getattr(self, each.name)]) for each in fields(self)}
        return type(self)(**rates)


@dataclass(frozen=True, kw_only=True)  # no slots: what follows from it is kept
class SwapProfile:
    """What a training step of one module saves, and how long its parts take on one kind of device."""

    device_kind: str
    torch_version: str = ""
    #: Names the module and the shapes of one sample.
    shape_key: str
    rows: tuple[SavedRow, ...]
    ticks: tuple[Tick, ...]
    blocks: tuple[SwapBlock, ...] = ()
    link: SwapLink
    #: Bytes that stay whatever the plan: parameters, gradients, state of the optimiser, context of the device.
    fixed_bytes: float = 0.0
    #: What the allocator reserves beyond what is in use, as a share of it, at the peak.
    slack_frac: float = 0.0

    @cached_property
    def key(self) -> str:
        """Short hash of module, shapes, device and rows: a plan of one batch size serves another one."""
        plain = to_plain((self.device_kind, self.shape_key, tuple([row.key for row in self.rows])))
        return sha256(json.dumps(plain).encode()).hexdigest()[:12]

    @cached_property
    def number(self) -> Mapping[RowKey, int]:
        """Key of a row -> its number."""
        return {row.key: i for i, row in enumerate(self.rows)}

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Layer types in the order of their first row."""
        return tuple(dict.fromkeys(row.layer_type for row in self.rows))


@dataclass(frozen=True, kw_only=True)
class SwapPlan:
    """What is done with each row of a profile; rows that a step saves beyond it are kept."""

    profile_key: str = ""
    #: The rows.
    keys: tuple[RowKey, ...] = ()
    #: Of each row.
    actions: tuple[Action, ...] = ()
    #: Paths of the submodules whose forward pass is made again.
    blocks: tuple[str, ...] = ()

    @classmethod
    def keeping(cls, profile: SwapProfile | None = None) -> Self:
        """Return the plan that keeps every row of a profile."""
        if profile is None:
            return cls()
        kept: tuple[Action, ...] = (KEEP,)
        return cls(profile_key=profile.key, keys=tuple(profile.number), actions=kept * len(profile.rows))

    @cached_property
    def key(self) -> str | None:
        """Short hash by which commands name it; None if it keeps every row."""
        if not self.blocks and set(self.actions) <= {KEEP}:
            return None
        return sha256(json.dumps(to_plain(self)).encode()).hexdigest()[:12]

    @cached_property
    def action_of(self) -> Mapping[RowKey, Action]:
        """Key of a row -> what is done with it."""
        return dict(zip(self.keys, self.actions, strict=True))

    def problem(self, profile: SwapProfile, pins: Mapping[str, str] | None = None) -> str:
        """Return why it cannot be carried out on a profile's rows, in a line; empty if it can.

        Parameters
        ----------
        profile
            What the step saves.
        pins
            Name of a row -> the action that the user wants for it.
        """
        if self.keys != tuple(profile.number) or len(self.actions) != len(self.keys):
            return f"the plan is of {len(self.keys)} rows, not of the {len(profile.rows)} of {profile.shape_key}"
        rows_of = {block.path: block.rows for block in profile.blocks}
        unknown = [path for path in self.blocks if path not in rows_of]
        if unknown:
            return f"there is no block {unknown[0]!r}"
        inside = [key for path in self.blocks for key in rows_of[path]]
        chosen = set(inside)
        if len(chosen) < len(inside):
            return f"blocks {', '.join(self.blocks)} overlap"
        problems = (self._row_problem(row, row.key in chosen, pins or {}) for row in profile.rows)
        return next(filter(None, problems), "")

    def _row_problem(self, row: SavedRow, inside: bool, pins: Mapping[str, str]) -> str:
        action = self.action_of[row.key]
        if (action == BLOCK) != inside:
            return f"{row.name}: a row is of action block if and only if it lies in a chosen block"
        if action == SQUEEZE and not row.squeeze_kind:
            return f"{row.name}: it cannot be squeezed"
        if action == DERIVE and (row.derive_from is None or self.action_of.get(row.derive_from) not in {KEEP, SWAP}):
            return f"{row.name}: it cannot be derived but from a row that is kept or swapped"
        wanted = pins.get(row.name, action)
        return "" if wanted == action else f"{row.name}: it is pinned to {wanted}, got {action}"


def facts(value: SwapProfile | SwapPlan | SwapLink) -> Facts:
    """Return a profile, a plan or a link as records hold it: tuples, no lists."""
    return cast("Facts", base.from_plain(to_plain(value)))


def written(value: object) -> str:
    """Return a profile, a plan or what was learned as JSON."""
    return json.dumps(to_plain(value), separators=(",", ":"))


def read(kind: type[_T], text: str, **given: object) -> _T:
    """Return what :func:`written` has made text of, with values of its transient fields.

    Raises
    ------
    ValueError
        If the text is no JSON, or holds something else.
    """
    plain = json.loads(text)
    if not isinstance(plain, dict):
        raise ValueError(f"a {kind.__name__} must be a JSON object, got {type(plain).__name__}")
    return from_plain(kind, plain, **given)
