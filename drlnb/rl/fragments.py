"""Carry experience as flat arrays beside a plain header: one contiguous stretch of some environments.

Time is the first axis, the environment the second.  Observations and rewards are as the policy learns from them: where
the task normalises, they are scaled with what each environment had shown until then.

=================  =====================  =================================================================
name               shape                  meaning
=================  =====================  =================================================================
``obs``            ``(T, n, *obs)``       observations acted upon, the environment's dtype (float32 if normalised)
``last_obs``       ``(n, *obs)``          observation after the last step
``action``         ``(T, n)`` int64       discrete actions from 0, or ``(T, n, d)`` float32, *unclipped*
``log_prob``       ``(T, n)`` float32     log-probability under the version that acted
``reward``         ``(T, n)`` float32     reward
``terminated``     ``(T, n)`` bool        true end
``truncated``      ``(T, n)`` bool        time limit and not a true end
``final_obs``      ``(k, *obs)``          last observation of each truncated episode
``final_at``       ``(k, 2)`` int32       its ``(t, column)``
``action_mask``    ``(T, n, width)`` bool  allowed choices, see :mod:`drlnb.rl.envs.masks`; only with ``use_masking``
``obs_moments``    ``(n, 1 + 2 d)`` f64   count, means, M2 of the raw observations; only when they are normalised
``return_moments`` ``(n, 3)`` f64         count, mean, M2 of the discounted returns; only when rewards are scaled
=================  =====================  =================================================================
"""

import json
from dataclasses import dataclass
from typing import Self

import numpy as np

from drlnb.records.base import Facts

__all__ = ["Fragment"]

_Bytes = bytes | bytearray | memoryview | np.ndarray

#: Arrays start at multiples of this many bytes (a cache line; enough for every vector instruction).
_ALIGN = 64


@dataclass(frozen=True, slots=True)
class Fragment:
    """A stretch of experience of some environments of one task."""

    #: Plain data: task, round, version, env_indices, n_envs, n_steps, n_samples, collect_s, episodes.
    header: Facts
    #: Name -> array, see the module's table.
    arrays: dict[str, np.ndarray]

    def pack(self) -> tuple[Facts, memoryview]:
        """Return a plain header with the layout, and one contiguous buffer; nothing is pickled.

        Returns
        -------
        tuple
            The header with the key ``layout``: ``[name, dtype, shape, offset in bytes]`` per array; and the bytes.
        """
        layout: list[tuple[str, str, list[int], int]] = []
        offset = 0
        for name, array in self.arrays.items():
            layout.append((name, array.dtype.str, list(array.shape), offset))
            offset += -(-array.nbytes // _ALIGN) * _ALIGN
        buffer = np.zeros(offset, np.uint8)
        for (_, dtype, shape, start), array in zip(layout, self.arrays.values(), strict=True):
            np.ndarray(shape, dtype, buffer, start)[...] = array
        return {**self.header, "layout": [list(row) for row in layout]}, buffer.data

    @classmethod
    def unpack(cls, header: Facts, buffer: _Bytes) -> Self:
        """Rebuild a fragment whose arrays are views into `buffer`.

        Parameters
        ----------
        header
            What :meth:`pack` returned, perhaps after a journey as JSON or msgpack.
        buffer
            The bytes; kept alive by the views.

        Raises
        ------
        ValueError
            If the buffer is shorter than the layout says.
        """
        plain = {key: value for key, value in header.items() if key != "layout"}
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # numpy's are buffers, too
        arrays: dict[str, np.ndarray] = {}
        for name, dtype, shape, start in header["layout"]:
            needed = start + int(np.prod(shape)) * np.dtype(dtype).itemsize
            if needed > view.nbytes:
                raise ValueError(f"fragment array {name!r} ends at byte {needed}, the buffer holds {view.nbytes}")
            arrays[name] = np.ndarray(tuple(shape), np.dtype(dtype), view, start)
        return cls(plain, arrays)

    def to_bytes(self) -> bytes:
        """Return header and arrays as one run of bytes: length of the header, the header as JSON, the buffer."""
        header, buffer = self.pack()
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + buffer

    @classmethod
    def from_bytes(cls, data: _Bytes) -> Self:
        """Rebuild a fragment from :meth:`to_bytes`; its arrays are views into `data`."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # as above
        end = 8 + int.from_bytes(view[:8], "little")
        return cls.unpack(json.loads(bytes(view[8:end])), view[end:])
