"""Read a picture's messages as JavaScript does."""

import numpy as np

from drlnb.views.drawing.payload import _DTYPES


def decode(header, buffers, known=None):
    """Return the tables of :func:`encode`, or what :func:`diff` brings, as JavaScript reads them.

    Parameters
    ----------
    header, buffers
        A message.
    known
        Table -> its columns, as messages so far have named them; is brought up to date.
    """
    tables = {}
    named = {} if known is None else known
    at = 0
    for one in header["layout"]:
        columns = tables[one["table"]] = {}
        named[one["table"]] = one.get("columns") or named[one["table"]]
        for name, code in named[one["table"]]:
            kind = np.dtype(_DTYPES[code])
            values = np.frombuffer(buffers[0], dtype=kind, count=one["n"], offset=at)
            at += -(-one["n"] * kind.itemsize // 4) * 4
            columns[name] = values.astype(np.float64) + one["t0"] if code == "t" else values.copy()
    return tables
