"""Fragments survive the journey without pickling and without copies."""

import json

import numpy as np
import pytest

from drlnb.rl.fragments import Fragment


@pytest.fixture
def fragment():
    arrays = {
        "obs": np.arange(12, dtype=np.float32).reshape(2, 3, 2),
        "terminated": np.array([[True, False, True]] * 2),
        "final_obs": np.zeros((0, 2), np.float32),
        "final_at": np.array([[1, 2]], np.int32),
    }
    return Fragment({"round": 3, "episodes": [[9.0, 9]]}, arrays)


def test_round_trip_through_json_and_bytes(fragment):
    """Header through JSON, buffer through bytes: the same names, dtypes, shapes and values come back."""
    header, buffer = fragment.pack()
    back = Fragment.unpack(json.loads(json.dumps(header)), bytes(buffer))
    assert back.header == fragment.header
    assert list(back.arrays) == list(fragment.arrays)
    for name, array in fragment.arrays.items():
        assert back.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(back.arrays[name], array)


def test_unpacked_arrays_are_views(fragment):
    """A change in the buffer shows in the array: nothing was copied."""
    header, buffer = fragment.pack()
    own = bytearray(buffer)
    back = Fragment.unpack(header, own)
    own[0:4] = np.float32(42).tobytes()
    assert back.arrays["obs"][0, 0, 0] == 42.0


def test_a_short_buffer_is_refused(fragment):
    """A torn buffer raises with the array's name and both sizes."""
    header, buffer = fragment.pack()
    with pytest.raises(ValueError, match=r"'obs' ends at byte 48, the buffer holds 40"):
        Fragment.unpack(header, bytes(buffer)[:40])
