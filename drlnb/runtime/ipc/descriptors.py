"""Open as many files as the system permits: each task of a node takes about eight descriptors."""

import contextlib
import resource

__all__ = ["raise_limit"]

#: More than any node needs; some programs walk through all that they may have.
_MOST = 65_536


def raise_limit() -> int:
    """Raise the number of files that may be open to what the system permits; return it, 0 if there is no such limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems permit less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return 0 if soft == resource.RLIM_INFINITY else soft
