"""Make torch compute with one thread wherever a task acts or learns: its sums are the same bits everywhere."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["one_thread"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Make torch compute with one thread, as an executor does; the caller's number comes back at the end.

    Small networks lose by more threads, and sums over several threads have other last bits.
    """
    import torch  # here, so that a collector may import this module

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
