"""Name the plain data that travels between processes and into files: what JSON and msgpack hold."""

from collections.abc import Mapping
from typing import Any

__all__ = ["Facts", "Space", "Values"]

#: Plain data with text keys.  Any, because numbers, texts, lists and mappings stand side by side.
Facts = Mapping[str, Any]
#: The same, while it is being put together.
Values = dict[str, Any]
#: A space as plain data, see :func:`drlnb.rl.envs.make.describe`: keys and their types depend on its ``kind``.
Space = Facts
