"""What must be true of a notebook that is kept in the repository?  One line per finding; pure."""

import ast
import re
from collections.abc import Iterator
from typing import Any

CELL_LINES = 40
_ID = re.compile(r"[a-z][a-z0-9-]{1,30}")
_ADDRESS = re.compile(r"https?://(?!127\.0\.0\.1|localhost)[^\s)\"']+")


def source(cell: dict[str, Any]) -> str:
    """Return a cell's text."""
    return "".join(cell["source"])


def tags(cell: dict[str, Any]) -> list[str]:
    """Return a cell's tags."""
    return list(cell["metadata"].get("tags", ()))


def findings(notebook: dict[str, Any]) -> list[str]:
    """Return what is wrong with a notebook."""
    found = [*_whole(notebook), *_shape(notebook["cells"])]
    for cell in notebook["cells"]:
        found += [f"{cell.get('id', '?')}: {text}" for text in _cell(cell)]
    return found


def _whole(notebook: dict[str, Any]) -> Iterator[str]:
    meta = notebook["metadata"]
    if "widgets" in meta:
        yield "metadata.widgets is there: it makes GitHub show an invalid notebook"
    if meta.get("kernelspec", {}).get("name") != "python3":
        yield "the kernel is not python3"
    if unknown := set(meta) - {"kernelspec", "language_info", "widgets"}:
        yield f"metadata of an editor: {', '.join(sorted(unknown))}"
    if (notebook["nbformat"], notebook["nbformat_minor"]) != (4, 5):
        yield "format is not 4.5, the first with cell ids"
    ids = [cell.get("id", "") for cell in notebook["cells"]]
    if len(set(ids)) != len(ids):
        yield "two cells have the same id"


def _shape(cells: list[dict[str, Any]]) -> Iterator[str]:
    if cells[0]["cell_type"] != "markdown" or not source(cells[0]).startswith("# "):
        yield "it does not begin with a title"
    if [tags(cell) for cell in cells].count(["parameters"]) != 1:
        yield "there is not exactly one cell tagged parameters"
    if tags(cells[-1]) != ["check"] or "assert " not in source(cells[-1]):
        yield "the last cell is not tagged check and asserts nothing"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    text = source(cell)
    if not _ID.fullmatch(cell.get("id", "")):
        yield "its id is not a word that says what it does"
    if (n := len(text.splitlines())) > CELL_LINES:
        yield f"{n} lines, at most {CELL_LINES}"
    if address := _ADDRESS.search(text.replace("http://www.w3.org/2000/svg", "")):
        yield f"names an address outside: {address.group()}"
    if cell["cell_type"] != "code":
        return
    if cell["outputs"] or cell["execution_count"] is not None:
        yield "output or count is stored"
    tree = ast.parse(text)
    called = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "attr")}
    if "wait" in called:
        yield "run.wait() blocks the kernel; use await"
