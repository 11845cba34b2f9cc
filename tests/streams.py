"""Read a stream from its lines as everybody reads one: from a file."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from drlnb.records.journal import read_stream

__all__ = ["stream_of"]


def stream_of(lines, *, source):
    """Return a stream of a file of this name, with all its records in memory."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / source
        path.write_text("".join(lines), encoding="utf-8")
        stream = read_stream(path)
        return replace(stream, records=tuple(stream.records), source=source)
