"""Write frames as an animated PNG, which every browser shows, by zlib and numpy alone.

Format: PNG specification, third edition (W3C 2025), chunks ``acTL``, ``fcTL``, ``fdAT``.  Each frame holds only the
rectangle that changed, which for most environments is small.
"""

import struct
import zlib
from collections.abc import Sequence

import numpy as np

__all__ = ["animated_png"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB, _DEPTH = 2, 8  # colour type and bits per channel of IHDR
#: Frames are text-like drawings: the middle level is within 5 % of the best at a third of the time.
_LEVEL = 6


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _pixels(frame: np.ndarray) -> bytes:
    rows = frame.reshape(len(frame), -1)
    return zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes(), _LEVEL)  # a filter byte 0 before each row


def _changed(before: np.ndarray, after: np.ndarray) -> tuple[slice, slice]:
    """Return rows and columns of the smallest rectangle that holds all differences; one pixel where there is none."""
    different = (before != after).any(axis=2)
    rows, columns = np.flatnonzero(different.any(axis=1)), np.flatnonzero(different.any(axis=0))
    if not len(rows):
        return slice(0, 1), slice(0, 1)
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def animated_png(frames: Sequence[np.ndarray] | np.ndarray, *, frame_s: float) -> bytes:
    """Return the file, which is played without end.

    Parameters
    ----------
    frames
        uint8, shape ``(H, W, 3)`` each, all alike; at least one.
    frame_s
        Seconds per frame, in ``(0, 65)``.

    Returns
    -------
    bytes
        An animated PNG; programs that know no animation show the first frame.

    Raises
    ------
    ValueError
        If there is no frame, or one has another shape or type.
    """
    if not len(frames):
        raise ValueError("frames must hold at least one picture, got none")
    shape = frames[0].shape
    for i, frame in enumerate(frames):
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape != shape or shape[2] != 3:
            raise ValueError(f"frames[{i}] must be uint8 (H, W, 3) like the first, got {frame.dtype} {frame.shape}")
    height, width = shape[:2]
    parts = [
        _SIGNATURE,
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, _DEPTH, _RGB, 0, 0, 0)),
        _chunk(b"acTL", struct.pack(">II", len(frames), 0)),
    ]
    delay_ms = max(1, min(65_000, round(frame_s * 1000)))
    for number, frame in enumerate(frames):
        rows, columns = _changed(frames[number - 1], frame) if number else (slice(0, height), slice(0, width))
        size = (int(columns.stop - columns.start), int(rows.stop - rows.start), int(columns.start), int(rows.start))
        # Leave what was drawn (dispose 0) and overwrite the rectangle (blend 0).  Each frame but the first takes two
        # numbers of the sequence.
        sequence, body = max(0, 2 * number - 1), _pixels(frame[rows, columns])
        parts.append(_chunk(b"fcTL", struct.pack(">IIIIIHHBB", sequence, *size, delay_ms, 1000, 0, 0)))
        parts.append(_chunk(b"fdAT", struct.pack(">I", sequence + 1) + body) if number else _chunk(b"IDAT", body))
    return b"".join([*parts, _chunk(b"IEND", b"")])
