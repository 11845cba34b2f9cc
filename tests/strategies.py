"""The one home of hypothesis strategies."""

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from drlnb.records.ids import Fence

__all__ = ["fewer", "plain", "records_of"]

_numbers = st.floats(allow_nan=False)
_text = st.text(max_size=8)
_fences = st.builds(Fence, epoch=st.integers(0, 2**62), token=st.integers(0, 2**40))


def fewer(share, **more):
    """Return settings with one in so many of the profile's examples: for a law that is tried on each of many kinds."""
    return settings(max_examples=max(3, settings.default.max_examples // share), deadline=None, **more)


@functools.cache
def plain():
    """Return plain data as a record holds it: tuples, never lists."""
    leaves = st.none() | st.booleans() | st.integers() | _numbers | _text
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=2)
        ),
        max_leaves=6,
    )


@functools.cache
def records_of(kind):
    """Return records of one class, built from the types of its fields."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: _of_type(hints[field.name]) for field in fields(kind)})


@functools.cache
def _of_type(hint):
    simple = {
        str: _text, float: _numbers, int: st.integers(), bool: st.booleans(), Fence: _fences, Any: plain(),
        type(None): st.none(),
    }  # fmt: skip
    if hint in simple:
        return simple[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(_of_type(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_of_type, arguments))
    if origin is types.UnionType:
        return st.one_of(*map(_of_type, arguments))
    if origin is Mapping:
        return st.dictionaries(st.text("abc/_", max_size=5), _of_type(arguments[1]), max_size=3)
    if is_dataclass(hint):
        return records_of(hint)
    raise TypeError(f"no strategy for {hint}")
