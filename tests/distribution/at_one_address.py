"""Tensors at one address that are not the same values, and the values, written down or made by plain copies."""

import numpy as np
import torch

__all__ = ["arrays_at_one_address", "tensors_at_one_address"]


class Plain(torch.Tensor):
    """A subclass with torch's own memory."""


def tensors_at_one_address():
    """Return tensors by name, and the arrays that a reader must find."""
    z = torch.tensor([[1 + 2j, 3 - 4j], [5 + 6j, 7 - 8j]])
    line = torch.arange(12.0)
    square = line[:4].view(2, 2)
    tensors = {
        "z": z,
        "conj": z.conj(),
        "turned": z.T,
        "turned conj": z.mH,
        "imag": z.imag,
        "minus imag": z.conj().imag,
        "parts": torch.view_as_real(z),
        "line": line,
        "bits": line.view(torch.int32),
        "halves": line.view(torch.bfloat16),
        "bytes": line.view(torch.uint8),
        "square": square,
        "square turned": square.T,
        "second": line[1:],
        "every other": line[::2],
        "wide": line[:1].expand(3),
        "tall": line[:2, None].expand(2, 3),
        "diagonal": square.diagonal(),
        "flat": line[:1].squeeze(),
        "leaf": torch.nn.Parameter(line),
        "subclass": line.as_subclass(Plain),
        "again": z.conj(),
        "nothing": line[:0],
        "nothing of two": line[:0].view(0, 2),
    }
    values = np.arange(12, dtype=np.float32)
    numbers = np.array([[1 + 2j, 3 - 4j], [5 + 6j, 7 - 8j]], np.complex64)
    expected = {
        "z": numbers,
        "conj": [[1 - 2j, 3 + 4j], [5 - 6j, 7 + 8j]],
        "turned": [[1 + 2j, 5 + 6j], [3 - 4j, 7 - 8j]],
        "turned conj": [[1 - 2j, 5 - 6j], [3 + 4j, 7 + 8j]],
        "imag": [[2, -4], [6, -8]],
        "minus imag": [[-2, 4], [-6, 8]],
        "parts": [[[1, 2], [3, -4]], [[5, 6], [7, -8]]],
        "line": values,
        "bits": values.view(np.int32),
        "halves": values.view(np.uint16),
        "bytes": values.view(np.uint8),
        "square": [[0, 1], [2, 3]],
        "square turned": [[0, 2], [1, 3]],
        "second": values[1:],
        "every other": [0, 2, 4, 6, 8, 10],
        "wide": [0, 0, 0],
        "tall": [[0, 0, 0], [1, 1, 1]],
        "diagonal": [0, 3],
        "flat": 0,
        "leaf": values,
        "subclass": values,
        "again": [[1 - 2j, 3 + 4j], [5 - 6j, 7 + 8j]],
        "nothing": np.empty(0, np.float32),
        "nothing of two": np.empty((0, 2), np.float32),
    }
    return tensors, expected


def arrays_at_one_address():
    """Return arrays by name, and those that a reader must find."""
    line = np.arange(6, dtype="<i4")
    big = line.view(">i4")
    swapped = [value << 24 for value in range(6)]
    arrays = {
        "line": line,
        "big-endian": big,
        "backwards": line[::-1],
        "square": line[:4].reshape(2, 2),
        "square turned": line[:4].reshape(2, 2).T,
        "floats": line.view(np.float32),
        "wide": np.broadcast_to(line[:1], 3),
        "big-endian again": line.view(">i4"),
        "big-endian every other": big[::2],
        "read-only": np.broadcast_to(line, 6),
    }
    expected = {
        "line": [0, 1, 2, 3, 4, 5],
        "big-endian": swapped,
        "backwards": [5, 4, 3, 2, 1, 0],
        "square": [[0, 1], [2, 3]],
        "square turned": [[0, 2], [1, 3]],
        "floats": np.array([0, 1, 2, 3, 4, 5], np.int32).view(np.float32),
        "wide": [0, 0, 0],
        "big-endian again": swapped,
        "big-endian every other": swapped[::2],
        "read-only": [0, 1, 2, 3, 4, 5],
    }
    return arrays, expected
