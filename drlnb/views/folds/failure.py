"""Find the line of a traceback that a user wants to read first."""

import re

__all__ = ["first_cause"]

_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>\S+))?')
_HEAD = "Traceback (most recent call last):"
#: Files of others: installed packages, the standard library, frozen modules, and the library's own layers.
_FOREIGN = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]|[\\/]lib[\\/]python3[^\\/]*[\\/]|^<frozen"
    r"|[\\/]drlnb[\\/](?:fleet|planning|records|rl|runtime|sim)[\\/]"
)


def first_cause(detail: str) -> str:
    """Return file, line, function and message of the last line of a user's own code in a traceback.

    Parameters
    ----------
    detail
        Text that holds a traceback of Python, chained ones included.

    Returns
    -------
    str
        The innermost frame outside installed packages, the standard library and this library, in the first part of
        the chain that has one: the error that all others followed.  The innermost frame at all if there is none;
        empty if the text holds no traceback.

    Examples
    --------
    >>> text = "Traceback (most recent call last):|  File '/a/env.py', line 7, in step|    raise X|X: no"
    >>> first_cause(text.replace("|", chr(10)).replace("'", '"'))
    'env.py:7, step: X: no'
    """
    parts = [part for text in detail.split(_HEAD)[1:] if (part := _last_frames(text)) is not None]
    if not parts:
        return ""
    own, deepest, message = next((part for part in parts if part[0]), parts[0])
    return f"{own or deepest}: {message}" if message else own or deepest


def _last_frames(part: str) -> tuple[str, str, str] | None:
    """Return the innermost own frame, the innermost frame, and the first line of the message."""
    own = deepest = message = ""
    for text in part.splitlines():
        frame = _FRAME.match(text)
        if frame:
            name = re.split(r"[\\/]", frame["path"])[-1]
            deepest = f"{name}:{frame['line']}" + (f", {frame['name']}" if frame["name"] else "")
            own = own if _FOREIGN.search(frame["path"]) else deepest
        elif deepest and text and not text[0].isspace():
            message = text.strip()
            break
    return (own, deepest, message) if deepest else None
