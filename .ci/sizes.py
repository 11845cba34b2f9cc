"""Find what ruff cannot: modules of more than 400 lines, and exported values without a ``#:`` comment.

Usage: ``python .ci/sizes.py [ROOT]``, where ROOT holds ``drlnb/`` and ``benchmarks/``.  Prints one line per finding;
exits 1 if there is one.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES = 400


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


def findings(root: Path) -> Iterator[str]:
    """Yield one line per violation below `root`."""
    files = sorted(file for top in ("benchmarks", "drlnb") for file in (root / top).rglob("*.py"))
    if not files:
        yield f"{root}: no modules found below drlnb/"
    for file in files:
        path = file.relative_to(root).as_posix()
        text = file.read_text(encoding="utf-8")
        tree, lines = ast.parse(text, path), text.splitlines()
        if len(lines) > MODULE_LINES:
            yield f"{path}:1: module has {len(lines)} lines, at most {MODULE_LINES}"
        exported = _exported(tree)
        for node in tree.body:
            for name in _names(node):
                if name in exported and not _has_comment(node, lines):
                    yield f"{path}:{node.lineno}: {name} is exported without a '#:' comment"


def main(arguments: list[str]) -> int:
    """Print the findings; return 1 if there are any."""
    found = list(findings(Path(arguments[0] if arguments else ".")))
    for line in found:
        print(line)
    print(f"sizes: {len(found)} findings" if found else "sizes: all within bounds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
