"""Carry supervised work as two pickles: a module with what trains it, and its data set.

What belongs together is one pickle, so that a loss or an evaluation that speaks of the module speaks of the one that is
trained.  The module comes first in it and can be read alone.  The data set, which may be large, is a pickle of its own
that a process reads once; an evaluation that speaks of it speaks of that one.
"""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from drlnb.records.errors import ConfigError
from drlnb.rl.pickled import culprit, display_name
from drlnb.runtime.ipc.pickling import Pickler

__all__ = ["copies", "pack_work", "read_data", "read_module", "read_program"]


class _Pickler(Pickler):
    """Writes one of the two pickles, in which the other one's object is named and not written."""

    def __init__(self, file: BinaryIO, elsewhere: object) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._elsewhere, self.n_named = elsewhere, 0

    def persistent_id(self, value: object) -> str | None:
        """Return the name of an object that is in the other pickle, None for one that is to be written."""
        if value is not self._elsewhere:
            return None
        self.n_named += 1
        return "elsewhere"

    def write(self, name: str, value: object) -> None:
        """Write an object; raise ConfigError if something of it cannot be pickled: the message names it."""
        try:
            self.dump(value)
        except Exception as error:  # noqa: BLE001 - pickling runs foreign code, which may raise anything
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            said = f"{name} cannot travel to another process: {culprit(value)} ({reason})"
        else:
            return
        raise ConfigError(said)


class _Unpickler(pickle.Unpickler):
    """Reads a program, beside its data set."""

    def __init__(self, file: BinaryIO, data: object) -> None:
        super().__init__(file)
        self._data = data

    def persistent_load(self, key: object) -> object:
        """Return the data set: nothing else is named."""
        del key
        return self._data


def pack_work(module: object, data: object, others: Mapping[str, object]) -> tuple[bytes, bytes]:
    """Return the pickles of a program and of its data set.

    Parameters
    ----------
    module
        What is trained.
    data
        The data set, or what makes it.
    others
        All else, by name; :func:`read_program` returns it in this order.

    Raises
    ------
    ConfigError
        If something cannot be pickled (the message names what keeps it), or the module and the data set hold each
        other: one of them would be a copy then.
    """
    with io.BytesIO() as program_file, io.BytesIO() as data_file:
        program, of_data = _Pickler(program_file, data), _Pickler(data_file, module)
        program.write(f"module {display_name(module)}", module)
        if program.n_named:
            raise ConfigError(
                "the module holds the data set, which would go with each of its copies: take it out of it"
            )
        for name, value in others.items():
            program.write(name, value)
        of_data.write(f"dataset {display_name(data)}", data)
        if of_data.n_named:
            raise ConfigError(
                "the data set holds the module, and would see a copy that is not trained: take it out of it"
            )
        return program_file.getvalue(), data_file.getvalue()


def copies(program: bytes, data: object, n: int) -> list[Any]:  # of types that only their owner knows
    """Return new copies of the first `n` objects of a program's pickle, beside the data set itself."""
    with io.BytesIO(program) as file:
        reader = _Unpickler(file, data)
        return [reader.load() for _ in range(n)]


def read_module(path: Path) -> object:
    """Return the module of a program as it was before it was trained; raises as :func:`read_data`."""
    return _read(path, None, n=1)[0]


def read_program(path: Path, data: object) -> list[Any]:  # of types that only their owner knows
    """Return the module and all that goes with it, in its order; raises as :func:`read_data`.

    Parameters
    ----------
    path
        The file.
    data
        What :func:`read_data` returned.
    """
    return _read(path, data)


def read_data(path: Path) -> object:
    """Return a data set, or what makes it.

    Raises
    ------
    ConfigError
        If the file cannot be read here, or needs a module that cannot be imported here.
    """
    return _read(path, None)[0]


def _read(path: Path, data: object, n: int | None = None) -> list[object]:
    """Return the first `n` objects of a file, None: all."""
    read: list[object] = []
    try:
        with path.open("rb") as file:
            reader, size = _Unpickler(file, data), path.stat().st_size
            while file.tell() < size and len(read) != n:
                read.append(reader.load())
        return read
    except OSError as error:
        said = f"{path} cannot be read ({error.strerror}): use a run directory that all nodes share"
    except Exception as error:  # noqa: BLE001 - unpickling runs foreign code, which may raise anything
        said = f"{path} cannot be rebuilt here: {type(error).__name__}: {' '.join(str(error).split())}"
    raise ConfigError(said)
