"""Find functions, modules and exported names that are not within the house's bounds.

Usage: ``python .ci/sizes.py [ROOT]``, where ROOT holds ``drlnb/`` and ``benchmarks/``.  Prints one line per finding;
exits 1 if there is one.  Functions have at most 60 lines, modules at most 400; every name in ``__all__`` is documented
where it is made.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

FUNCTION_LINES = 60
MODULE_LINES = 400

#: What may be larger, and why: ``path`` for a module, ``path::function`` for a function.
ALLOWED: dict[str, str] = {}

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _too_long(path: str, tree: ast.Module, lines: list[str]) -> Iterator[tuple[str, str]]:
    if len(lines) > MODULE_LINES:
        yield path, f"{path}:1: module has {len(lines)} lines, at most {MODULE_LINES}"
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES:
                where = f"{path}::{node.name}"
                yield where, f"{path}:{node.lineno}: {node.name} has {size} lines, at most {FUNCTION_LINES}"


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and _names(node) == ["__all__"]:
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def _names(node: ast.stmt) -> list[str]:
    """Return the names that an assignment makes."""
    if isinstance(node, ast.Assign):
        targets = [t for top in node.targets for t in (top.elts if isinstance(top, ast.Tuple) else [top])]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _has_comment(node: ast.stmt, lines: list[str]) -> bool:
    """Whether a ``#:`` comment stands right above an assignment or at its end."""
    above = node.lineno - 2
    while above >= 0 and lines[above].lstrip().startswith("#"):
        if lines[above].lstrip().startswith("#:"):
            return True
        above -= 1
    return "#: " in lines[(node.end_lineno or node.lineno) - 1]


def _undocumented(path: str, tree: ast.Module, lines: list[str]) -> Iterator[tuple[str, str]]:
    exported = [name for name in _exported(tree) if not name.startswith("__")]
    if exported and ast.get_docstring(tree) is None:
        yield path, f"{path}:1: exports names but has no docstring"
    for node in tree.body:
        if isinstance(node, _Function | ast.ClassDef) and node.name in exported and ast.get_docstring(node) is None:
            yield f"{path}::{node.name}", f"{path}:{node.lineno}: {node.name} is exported without a docstring"
        for name in set(_names(node)) & set(exported):
            if not _has_comment(node, lines):
                yield f"{path}::{name}", f"{path}:{node.lineno}: {name} is exported without a '#:' comment"


def findings(root: Path, allowed: Mapping[str, str]) -> list[str]:
    """Return one line per violation below `root`, and one per allowance that nothing needs."""
    out, used = [], set()
    files = sorted(file for top in ("benchmarks", "drlnb") for file in (root / top).rglob("*.py"))
    if not files:
        return [f"{root}: no modules found below drlnb/"]
    for file in files:
        path = file.relative_to(root).as_posix()
        text = file.read_text(encoding="utf-8")
        tree, lines = ast.parse(text, path), text.splitlines()
        for key, line in (*_too_long(path, tree, lines), *_undocumented(path, tree, lines)):
            if key in allowed:
                used.add(key)
            else:
                out.append(line)
    return out + [f"{key}: allowed, but nothing needs it" for key in allowed if key not in used]


def main(arguments: list[str]) -> int:
    """Print the findings; return 1 if there are any."""
    found = findings(Path(arguments[0] if arguments else "."), ALLOWED)
    for line in found:
        print(line)
    print(f"sizes: {len(found)} findings" if found else "sizes: all within bounds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
