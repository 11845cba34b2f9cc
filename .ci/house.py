"""Measure the house: code lines per room; classes, folders, types and passages that stand twice, each beside its bound.

``python .ci/house.py [ROOT] [--at-most LINES]`` prints two tables, then one line per finding; exits 1 if there is one.
Code lines are neither blank nor comment nor docstring, as the formatter lays the product out where nothing keeps a line
from it; they have a bound only where one is given.  A class counts with all classes of the house that it inherits from,
once each.  ``Any`` counts in annotations, by whatever name: after ``Plain = dict[str, Any]`` each ``Plain`` is one, and
so it is where it is imported.  A passage stands twice if six or more lines in a row, not all declared fields, are alike
but for names and values.
"""

import argparse
import ast
import io
import keyword
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

FOLDER_FILES = 16
CLASS_LINES, CLASS_METHODS = 400, 25
#: Where models are, whose methods and attributes are all names that users of Stable-Baselines3 know: their bounds.
FACES, FACE_LINES, FACE_METHODS = ("drlnb.fleet.algorithms", "drlnb.fleet.algorithm", "drlnb.fleet.learning"), 640, 42
PASSAGES = 58
#: Annotations of the product that are Any, and keys that runtime types as strings: more typed messages, fewer of both.
ANY, SUBSCRIPTS = 1_170, 450
#: Lines that the formatter may not lay out; they are for tables.
SKIPPED = 25
SKIP = "# fmt: skip"

_PASSAGE_LINES = 6
#: A shape that stands in more places than this is the language's, not ours.
_COMMON = 8

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Class:
    """One class and what it is made of."""

    module: str
    name: str
    n_lines: int
    n_methods: int
    bases: tuple[str, ...]


@dataclass
class Module:
    """One Python file, read once."""

    path: str
    text: str
    tree: ast.Module
    n_code: int
    classes: list[Class] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its dotted name."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def room(self) -> str:
        """The room it lies in: its second part, ``drlnb`` for the top."""
        parts = self.path.split("/")
        return parts[1] if len(parts) > 2 else parts[0]


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines that docstrings take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | _Function) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines that hold code."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(tree))


def javascript_lines(text: str) -> int:
    """Return the lines of a JavaScript file that are neither blank nor comment."""
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    return sum(bool(line.strip()) and not line.strip().startswith("//") for line in text.splitlines())


def read(root: Path, top: str) -> list[Module]:
    """Return every module below `top`."""
    modules = []
    for path in sorted((root / top).rglob("*.py")):
        if path.is_relative_to(root / "drlnb/cli/notebooks"):
            continue
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
        module = Module(path.relative_to(root).as_posix(), text, tree, code_lines(text, tree))
        module.classes = list(_classes(module))
        modules.append(module)
    return modules


def _classes(module: Module) -> Iterator[Class]:
    imported: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            bases = []
            for base in node.bases:
                words = ast.unparse(base).partition("[")[0]
                head, _, rest = words.partition(".")
                home = imported.get(head, f"{module.name}.{head}")
                bases.append(f"{home}.{rest}" if rest else home)
            n_methods = sum(isinstance(item, _Function) for item in node.body)
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Class(module.name, node.name, size, n_methods, tuple(bases))


def over_inheritance(modules: Iterable[Module]) -> list[tuple[int, int, str]]:
    """Return (lines, methods, name) of each class, those of its bases in the house counted in; the largest first."""
    known = {f"{cls.module}.{cls.name}": cls for module in modules for cls in module.classes}

    def family(name: str, seen: set[str]) -> set[str]:
        if name in known and name not in seen:
            seen.add(name)
            for base in known[name].bases:
                family(base, seen)
        return seen

    sizes = []
    for name in known:
        members = [known[member] for member in family(name, set())]
        sizes.append((sum(cls.n_lines for cls in members), sum(cls.n_methods for cls in members), name))
    return sorted(sizes, reverse=True)


def folders(modules: Iterable[Module]) -> list[tuple[int, str]]:
    """Return (files, folder) of each folder, ``__init__`` not counted; the fullest first."""
    counts: defaultdict[str, int] = defaultdict(int)
    for module in modules:
        if not module.path.endswith(("__init__.py", "conftest.py")):
            counts[module.path.rpartition("/")[0]] += 1
    return sorted(((n, folder) for folder, n in counts.items()), reverse=True)


def n_any(modules: Iterable[Module]) -> int:
    """Return how many names in annotations mean Any, or contain it."""
    modules = list(modules)
    known: dict[str, set[str]] = {module.name: set() for module in modules}
    aliases = [alias for module in modules for alias in _aliases(module)]
    size = -1
    while size != (size := sum(map(len, known.values()))):  # an alias of an alias, imported from a third module
        for name, alias, made_of in aliases:
            if any(word == "Any" or word in known.get(home, ()) for home, word in made_of):
                known[name].add(alias)
    return sum(
        word == "Any" or word in known[module.name]
        for module in modules
        for annotation in _annotations(module.tree)
        for word in _words(annotation)
    )


def _aliases(module: Module) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield (module, name, what it is made of: names, each with the module to look it up in)."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield module.name, alias.asname or alias.name, [(node.module, alias.name)]
    for node in module.tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", getattr(node, "name", None))]
        )
        value = getattr(node, "value", None)
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and isinstance(value, _ALIAS):
            yield module.name, targets[0].id, [(module.name, word) for word in _words(value)]


#: What an alias of a type looks like; a call makes a value.
_ALIAS = ast.Subscript | ast.Name | ast.BinOp | ast.Attribute


def _annotations(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        elif isinstance(node, _Function) and node.returns:
            yield node.returns


def _words(node: ast.expr) -> Iterator[str]:
    """Yield the names of an expression, those in quotes included."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from re.findall(r"[A-Za-z_]\w*", part.value)


def n_string_keys(module: Module) -> int:
    """Return how often a module looks something up under a key that it types."""
    return sum(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
        for node in ast.walk(module.tree)
    )


def laid_out(root: Path, top: str) -> list[Module]:
    """Return every module below `top` as the formatter lays it out once no line is kept from it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(root / top, copy / top, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(root / "pyproject.toml", copy)
        for path in (copy / top).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            path.write_text(re.sub(rf" *{SKIP}", "", text), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", "--no-cache", top], cwd=copy, check=True)
        return read(copy, top)


def _shapes(module: Module) -> list[tuple[int, str]]:
    """Return (line, shape) of each line of code that has words: names, strings and numbers made equal."""
    docs, lines = docstring_lines(module.tree), defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        number = token.start[0]
        if number in docs or token.type in {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE}:
            continue
        if token.type == tokenize.NAME:
            lines[number].append(token.string if token.string in _KEYWORDS else "n")
        elif token.type in {tokenize.STRING, tokenize.NUMBER}:
            lines[number].append("s")
        elif token.type == tokenize.OP:
            lines[number].append(token.string)
    kept = []
    for number, words in sorted(lines.items()):
        shape = " ".join(words)
        if not words or words[0] in {"import", "from"} or not any(word.isalpha() for word in words):
            continue
        if shape in {"n ,", "n", "s ,", "s", "n = n ,", "s : n . n ,", "@ n"}:
            continue
        kept.append((number, shape))
    return kept


_KEYWORDS = frozenset({*keyword.kwlist, "self"})
#: Declared fields, parameters and rows of a table are a form, which says nothing twice.
_FORM = re.compile(r"n : |class |@ |s : |n \( s , |\( s , |n = \( s , |\)$|n = (n \(|\{)$")


def passages(modules: Iterable[Module]) -> list[tuple[str, int, str, int]]:
    """Return the pairs of places (path, line, path, line) whose six or more lines are alike; a pair of files once."""
    places: defaultdict[tuple[str, ...], list[tuple[str, int, int]]] = defaultdict(list)
    for module in modules:
        shapes = _shapes(module)
        for i in range(len(shapes) - _PASSAGE_LINES + 1):
            window = tuple(shape for _, shape in shapes[i : i + _PASSAGE_LINES])
            if len(set(window)) > 1 and not all(map(_FORM.match, window)):  # six equal lines are a table
                places[window].append((module.path, i, shapes[i][0]))
    pairs: dict[tuple[str, str, int], tuple[str, int, str, int]] = {}
    for where in places.values():
        if not 2 <= len(where) <= _COMMON:
            continue
        for (a, i, line), (b, j, other) in combinations(where, 2):
            if a != b or abs(i - j) >= _PASSAGE_LINES:
                pairs.setdefault((a, b, 0 if a != b else (j - i)), (a, line, b, other))
    return sorted(pairs.values())


@dataclass
class House:
    """The table and what is wrong."""

    rows: list[tuple[str, str, str, bool]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def row(self, what: str, value: object, bound: object, *, good: bool) -> None:
        """Add a line of the table."""
        self.rows.append((what, str(value), str(bound), good))

    def most(self, what: str, value: int, bound: int) -> None:
        """Add a line of the table; more than the bound is a finding."""
        self.row(what, f"{value:,}", f"{bound:,}", good=value <= bound)
        if value > bound:
            self.findings.append(f"{what}: {value:,}, at most {bound:,}")

    def sizes(self, classes: Iterable[tuple[int, int, str]]) -> None:
        """Find the classes that are too large."""
        for n_lines, n_methods, name in classes:
            face = name.rpartition(".")[0] in FACES
            most = (FACE_LINES, FACE_METHODS) if face else (CLASS_LINES, CLASS_METHODS)
            if n_lines > most[0] or n_methods > most[1]:
                self.findings.append(
                    f"class {name}: {n_lines} lines and {n_methods} methods over its inheritance, "
                    f"at most {most[0]} and {most[1]}"
                )


def _room_rows(house: House, root: Path, at_most: int | None) -> None:
    code: defaultdict[str, int] = defaultdict(int)
    scripts: defaultdict[str, int] = defaultdict(int)
    for module in laid_out(root, "drlnb"):
        code[module.room] += module.n_code
    for path in sorted((root / "drlnb").rglob("*.js")):
        scripts[path.relative_to(root).parts[1]] += javascript_lines(path.read_text(encoding="utf-8"))
    print(f"\n{'room':<12}{'code':>8}{'js':>7}")
    for room in sorted(code, key=lambda name: -code[name]):
        print(f"{room:<12}{code[room]:>8,}{scripts.get(room, 0) or '-':>7}")
    what = "code lines of the product, as the formatter lays them out"
    if at_most is None:
        house.row(what, f"{sum(code.values()):,}", "-", good=True)
    else:
        house.most(what, sum(code.values()), at_most)
    house.row("lines of JavaScript", f"{sum(scripts.values()):,}", "-", good=True)


def measure(root: Path, at_most: int | None = None) -> House:
    """Measure everything below `root`; the product may have so many code lines, if that is given."""
    house = House()
    _room_rows(house, root, at_most)
    product, benchmarks, tests = (read(root, top) for top in ("drlnb", "benchmarks", "tests"))
    house.most("annotations that are Any, aliases of it included", n_any(product), ANY)
    house.most(
        "keys typed as strings in runtime",
        sum(map(n_string_keys, (m for m in product if m.room == "runtime"))),
        SUBSCRIPTS,
    )
    house.most(f"{SKIP} in the product", sum(module.text.count(SKIP) for module in product), SKIPPED)

    product += benchmarks  # not in the wheel, so its lines do not count; but it is read like the product
    for name, modules in (("folder", product), ("folder of tests", tests)):
        fullest = folders(modules)
        house.row(f"files in the fullest {name} ({fullest[0][1]})", fullest[0][0], FOLDER_FILES, good=True)
        house.findings += [f"{folder}: {n} files, at most {FOLDER_FILES}" for n, folder in fullest if n > FOLDER_FILES]
    classes = over_inheritance(product)
    house.row(f"lines of the largest class ({classes[0][2]})", classes[0][0], CLASS_LINES, good=True)
    most = max(classes, key=lambda cls: cls[1])
    house.row(f"methods of the largest class ({most[2]})", most[1], CLASS_METHODS, good=True)
    house.sizes(classes)
    house.most("passages of six lines that stand twice", len(passages(product)), PASSAGES)
    return house


def main(arguments: list[str]) -> int:
    """Print the tables and the findings; return 1 if there are any."""
    parser = argparse.ArgumentParser(description="Measure the house.")
    parser.add_argument("root", nargs="?", default=".", type=Path)
    parser.add_argument("--at-most", type=int, metavar="LINES", help="code lines that the product may have")
    given = parser.parse_args(arguments)
    house = measure(given.root, given.at_most)
    print(f"\n{'the house':<76}{'now':>10}{'bound':>10}")
    for what, value, bound, good in house.rows:
        print(f"{what:<76}{value:>10}{bound:>10}{'' if good else '  MISSED'}")
    print()
    for line in house.findings:
        print(line)
    print(f"house: {len(house.findings)} findings" if house.findings else "house: all within bounds")
    return 1 if house.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
