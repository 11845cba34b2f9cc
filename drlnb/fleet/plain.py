"""Name the types of plain data: values as JSON holds them, which whoever reads one checks."""

from collections.abc import Mapping
from typing import Any

__all__ = ["Plain", "Row"]

#: Values by name, to be read.
Plain = Mapping[str, Any]
#: One row of a journal or a table.
Row = dict[str, Any]
