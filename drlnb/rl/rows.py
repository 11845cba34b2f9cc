"""Lay observations that are no single array out as rows: every key at its place, the same place always.

Collectors, rings and checkpoints know arrays only.  So a ``Dict`` (or a ``Discrete``) observation is laid out as one
row as soon as the environment returns it, and a network takes the row apart again.  What goes where follows from the
space alone.

* **No images**: float32, the keys one after the other in the order of the space, as Stable-Baselines3's
  ``CombinedExtractor`` joins them: boxes flattened, ``Discrete`` and ``MultiDiscrete`` one-hot, ``MultiBinary`` as it
  is.  An MLP takes such a row as any other.
* **With images** (uint8, three axes, 0 to 255): bytes.  First the float32 numbers of all other keys, then each image as
  the environment returns it, then padding to a multiple of 4.  So images are sent and kept as bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from drlnb.records.base import Facts
from drlnb.records.errors import EnvError
from drlnb.rl.normalise import normalise

__all__ = [
    "FLAT",
    "Part",
    "RowForm",
    "as_rows",
    "fitting",
    "form_of",
    "is_image",
    "normalised_rows",
    "part_spaces",
    "scalar",
    "vector_width",
]

#: Kind of the plain description of an observation space whose observations become rows.
FLAT = "flat"


def is_image(space: Facts) -> bool:
    """Return whether a plain space holds images: uint8, three axes, bounds 0 and 255."""
    if space["kind"] != "box" or len(space["shape"]) != 3 or space["dtype"] != "uint8":
        return False
    return set(space["low"]) == {0.0} and set(space["high"]) == {255.0}


def part_spaces(space: Facts) -> dict[str, Facts]:
    """Return the plain spaces of an observation's keys; what has no keys is one, named by the empty text."""
    of = space.get("of", space)
    return dict(of["spaces"]) if of["kind"] == "dict" else {"": of}


def fitting(
    obs: object, shape: tuple[int, ...], dtype: np.dtype, quoted: str = "", *, choices: bool = False
) -> np.ndarray:
    """Return an observation as an array of its space's shape.

    Parameters
    ----------
    obs
        As the environment returned it.
    shape, dtype
        Of its space.
    quoted
        Its key, in the words of a message.
    choices
        Whole numbers of any type are good.

    Raises
    ------
    EnvError
        If the shape differs, or its numbers do not fit the space's type (floats where the space has integers).
    """
    array = np.asarray(obs)
    if array.shape != shape:
        raise EnvError(f"returned an observation{quoted} of shape {array.shape}, its space says {shape}")
    if not np.can_cast(array.dtype, dtype, "same_kind") and not (choices and array.dtype.kind in "iu"):
        raise EnvError(f"returned an observation{quoted} of type {array.dtype}, its space says {dtype}")
    return array


def scalar(value: object) -> float:
    """Return a reward as a number: an array of one element is one, too.

    Raises
    ------
    TypeError, ValueError
        If it is none.
    """
    return float(value.item() if isinstance(value, np.ndarray) else value)  # type: ignore[arg-type]  # it raises


@dataclass(frozen=True, slots=True)
class Part:
    """One key of an observation."""

    #: Empty: the observation has no keys.
    name: str
    #: ``box``, ``image``, ``discrete``, ``multidiscrete`` or ``multibinary``.
    kind: str
    #: Of one observation as the environment returns it.
    shape: tuple[int, ...]
    dtype: np.dtype
    #: First place and width: in numbers of the vector, for images in bytes of the row.
    start: int
    width: int
    #: Discrete and multidiscrete: choices of each decision, and the first one's number.
    sizes: tuple[int, ...] = ()
    first: tuple[int, ...] = ()

    @property
    def stop(self) -> int:
        """First place after the key."""
        return self.start + self.width

    def numbers(self, values: np.ndarray) -> np.ndarray:
        """Return observations ``(B, *shape)`` of this key as numbers ``(B, width)``.

        Raises
        ------
        EnvError
            If a choice is none of the space's.
        """
        flat = values.reshape(len(values), -1)
        if not self.sizes:
            return flat
        choices = flat.astype(np.int64) - np.array(self.first)
        if (choices < 0).any() or (choices >= np.array(self.sizes)).any():
            raise EnvError(f"returned an observation{self.quoted} that is none of its space's choices: {values[0]!r}")
        numbers = np.zeros((len(flat), self.width), np.float32)
        offsets = np.cumsum((0, *self.sizes[:-1]))
        np.put_along_axis(numbers, choices + offsets, 1.0, axis=1)
        return numbers

    @property
    def quoted(self) -> str:
        """The key, in the words of a message."""
        return f" {self.name!r}" if self.name else ""


@dataclass(frozen=True, slots=True)
class RowForm:
    """Where each key of an observation lies in its row."""

    parts: tuple[Part, ...]
    #: Numbers of the keys that are no images.
    n_vector: int
    #: Length of a row, in numbers of :attr:`dtype`.
    width: int

    @classmethod
    def of(cls, of: Facts) -> "RowForm":
        """Return the form of a plain space, see :func:`drlnb.rl.envs.make.describe`."""
        made = [_part(name, space) for name, space in part_spaces(of).items()]
        n_vector = sum(part.width for part in made if part.kind != "image")
        place, byte, parts = 0, 4 * n_vector, []
        for part in made:
            image = part.kind == "image"
            parts.append(replace(part, start=byte if image else place))
            byte, place = (byte + part.width, place) if image else (byte, place + part.width)
        images = byte > 4 * n_vector
        return cls(tuple(parts), n_vector, -(-byte // 4) * 4 if images else n_vector)

    @property
    def images(self) -> bool:
        """Whether a key holds images: then rows are bytes."""
        return any(part.kind == "image" for part in self.parts)

    @property
    def dtype(self) -> np.dtype:
        """Of the rows."""
        return np.dtype(np.uint8 if self.images else np.float32)

    @property
    def normalised_columns(self) -> np.ndarray:
        """Which numbers running statistics are kept of: those of boxes; bool, shape ``(n_vector,)``."""
        columns = np.zeros(self.n_vector, np.bool_)
        for part in self.parts:
            if part.kind == "box":
                columns[part.start : part.stop] = True
        return columns

    def vector(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers of rows ``(..., width)`` as a view, float32, shape ``(..., n_vector)``."""
        return rows[..., : 4 * self.n_vector].view(np.float32) if self.images else rows

    def normalised(self, rows: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        """Return rows whose numbers are normalised; images stay as they are."""
        vector = normalise(self.vector(rows), mean, var)
        if not self.images:
            return vector
        result = np.array(rows)
        self.vector(result)[...] = vector
        return result

    def pack(self, values: Mapping[str, np.ndarray], n: int) -> np.ndarray:
        """Return rows ``(n, width)`` of observations by key, each ``(n, *shape)``."""
        rows = np.zeros((n, self.width), self.dtype)
        vector = self.vector(rows)
        for part in self.parts:
            target = rows if part.kind == "image" else vector
            target[:, part.start : part.stop] = part.numbers(values[part.name])
        return rows

    def keyed(self, obs: object) -> dict[str, object]:
        """Return an observation by key.

        Raises
        ------
        EnvError
            If it is no mapping, or a key is missing.
        """
        if len(self.parts) == 1 and not self.parts[0].name:
            return {"": obs}
        if not isinstance(obs, Mapping):
            raise EnvError(f"returned an observation of type {type(obs).__name__}, its space says Dict")
        missing = [part.name for part in self.parts if part.name not in obs]
        if missing:
            raise EnvError(f"returned an observation without the key {missing[0]!r} of its space")
        return {part.name: obs[part.name] for part in self.parts}

    def row(self, obs: object) -> np.ndarray:
        """Return the row of one observation of an environment, shape ``(width,)``.

        Raises
        ------
        EnvError
            If a key is missing, has another shape or type, or holds what is not finite or none of the choices.
        """
        values = self.keyed(obs)
        arrays = {
            part.name: fitting(values[part.name], part.shape, part.dtype, part.quoted, choices=bool(part.sizes))[None]
            for part in self.parts
        }
        row = self.pack(arrays, 1)[0]
        if self.images and not np.isfinite(self.vector(row)).all():  # invisible in bytes
            bad = next(name for name, array in arrays.items() if not np.isfinite(array).all())
            raise EnvError(f"the observation is not finite: {bad!r} is {arrays[bad][0]!r:.200}")
        return row


def _part(name: str, space: Facts) -> Part:
    """Return a key, its place not yet known."""
    shape = tuple(space.get("shape", ()))
    sizes = tuple(np.ravel(space.get("nvec", space.get("n", ()))).astype(int).tolist())
    first = tuple(np.ravel(space.get("start", np.zeros(len(sizes)))).astype(int).tolist())
    kind, dtype = "image" if is_image(space) else space["kind"], np.dtype(space.get("dtype", "int64"))
    return Part(name, kind, shape, dtype, 0, sum(sizes) or prod(shape), sizes, first)


def form_of(space: Facts | None) -> RowForm | None:
    """Return the form of a task's observations; None: they are arrays and stay as they are."""
    return RowForm.of(space["of"]) if space is not None and space["kind"] == FLAT else None


def normalised_rows(form: RowForm | None, rows: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """Return observations ``(B, *obs)``, normalised by statistics of their numbers; images in rows stay."""
    if form is not None:
        return form.normalised(rows, mean, var)
    return normalise(rows.reshape(len(rows), -1), mean, var).reshape(rows.shape)


def vector_width(space: Facts) -> int:
    """Return how many numbers of an observation statistics are kept of: all, but for images beside other keys."""
    form = form_of(space)
    return prod(space["shape"]) if form is None else form.n_vector


def as_rows(space: Facts, obs: object) -> tuple[np.ndarray, bool]:
    """Return one observation, or a batch of them, as a batch of rows, and whether it was one.

    Parameters
    ----------
    space
        The task's plain observation space.
    obs
        As the environment returns it, or with a first axis ``(B, ...)`` (of each key); rows are taken, too.

    Raises
    ------
    ValueError
        If the shape is neither.
    """
    form, wanted = form_of(space), tuple(space["shape"])
    if form is None or (isinstance(obs, np.ndarray) and obs.dtype == form.dtype and obs.shape[-1:] == wanted):
        try:
            rows = np.asarray(obs)
        except ValueError:  # rows of unequal lengths
            raise ValueError(f"observation must have the shape {wanted} or (n, *{wanted}), got {obs!r:.60}") from None
        if rows.dtype.kind not in "biuf":
            raise ValueError(f"observation must be numbers of the shape {wanted} or (n, *{wanted}), got {obs!r:.60}")
        if rows.shape != wanted and rows.shape[1:] != wanted:
            raise ValueError(f"observation must have the shape {wanted} or (n, *{wanted}), got {rows.shape}")
        return (rows[None], True) if rows.shape == wanted else (rows, False)
    try:
        values = {name: np.asarray(value) for name, value in form.keyed(obs).items()}
    except EnvError as error:
        raise ValueError(str(error).replace("returned an", "must be given an", 1)) from None
    for part in form.parts:
        if part.shape not in (values[part.name].shape, values[part.name].shape[1:]):
            expected = f"observation{part.quoted} must have the shape {part.shape} or (n, *{part.shape})"
            raise ValueError(f"{expected}, got {values[part.name].shape}")
    lengths = {None if values[part.name].shape == part.shape else len(values[part.name]) for part in form.parts}
    if len(lengths) > 1:
        raise ValueError("the keys of an observation must have the same number of rows")
    n = lengths.pop()
    arrays = {name: value[None] if n is None else value for name, value in values.items()}
    try:
        return form.pack(arrays, 1 if n is None else n), n is None
    except EnvError as error:
        raise ValueError(str(error).replace("returned an observation", "observation", 1)) from None
