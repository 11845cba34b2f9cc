"""Measure the house: sizes, classes, folders, words, types, tests and code lines per room, each beside its bound.

``python .ci/house.py [ROOT]`` prints two tables, then one line per finding; exits 1 if there is one.  Code lines are
neither blank nor comment nor docstring.  A class counts with all classes of the house that it inherits from, once each.
A passage stands twice if six or more lines in a row, not all declared fields, are alike but for names and values.
"""

import ast
import io
import keyword
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

FOLDER_FILES = 16
CLASS_LINES, CLASS_METHODS = 400, 25
ANY = 200
PASSAGES = 45
ODD_WORDS = 0

#: How no docstring begins (words of theatre).
VERBS = frozenset({"let", "note", "hear", "say", "tell", "take"})
PHRASES = ("a person", "somebody's", "the person")

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


def odd_words(module: Module) -> Iterator[str]:
    """Yield what a module says in words of its own: questions, theatre."""
    first = (ast.get_docstring(module.tree) or "").strip().partition("\n")[0]
    if "?" in first:
        yield f"{module.path}:1: its first line is a question, not what it does: {first[:60]}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | _Function):
            text = ast.get_docstring(node) or ""
            line = getattr(node, "lineno", 1)
            if text.split(maxsplit=1)[:1] and text.split(maxsplit=1)[0].lower() in VERBS:
                yield f"{module.path}:{line}: docstring begins with {text.split(maxsplit=1)[0]!r}"
            for phrase in PHRASES:
                if re.search(rf"\b{phrase}\b", text, re.IGNORECASE):
                    yield f"{module.path}:{line}: docstring says {phrase!r}; it is 'user'"


def n_any(module: Module) -> int:
    """Return how often a module says ``Any``."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(module.tree))


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
_FORM = re.compile(r"n : |class |@ |s : |n \( s , |n = (n \(|\{)$")


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
            if n_lines > CLASS_LINES or n_methods > CLASS_METHODS:
                self.findings.append(
                    f"class {name}: {n_lines} lines and {n_methods} methods over its inheritance, "
                    f"at most {CLASS_LINES} and {CLASS_METHODS}"
                )


def _room_rows(house: House, product: list[Module], tests: list[Module], scripts: dict[str, int]) -> None:
    code: defaultdict[str, int] = defaultdict(int)
    checks: defaultdict[str, int] = defaultdict(int)
    for module in product:
        code[module.room] += module.n_code
    for module in tests:
        checks[module.room] += module.n_code
    print(f"\n{'room':<12}{'code':>8}{'js':>7}{'tests':>8}{'tests/code':>12}")
    for room in sorted(code, key=lambda name: -code[name]):
        ratio = checks[room] / code[room] if code[room] else 0.0
        line = f"{room:<12}{code[room]:>8,}{scripts.get(room, 0) or '-':>7}"
        print(f"{line}{checks[room]:>8,}{ratio:>12.2f}")
    house.row("code lines of the product", f"{sum(code.values()):,}", "-", good=True)
    house.row("lines of JavaScript", f"{sum(scripts.values()):,}", "-", good=True)


def measure(root: Path) -> House:
    """Measure everything below `root`."""
    house = House()
    product, benchmarks, tests = (read(root, top) for top in ("drlnb", "benchmarks", "tests"))
    scripts: defaultdict[str, int] = defaultdict(int)
    for path in sorted((root / "drlnb").rglob("*.js")):
        scripts[path.relative_to(root).parts[1]] += javascript_lines(path.read_text(encoding="utf-8"))
    _room_rows(house, product, tests, scripts)

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
    said = sum(n_any(module) for module in product)
    house.most("annotations that say Any", said, ANY)
    twice = passages(product)
    house.most("passages of six lines that stand twice", len(twice), PASSAGES)
    words = [line for module in product for line in odd_words(module)]
    house.most("words: questions, theatre", len(words), ODD_WORDS)
    if house.findings and house.findings[-1].startswith("words"):
        house.findings += words
    return house


def main(arguments: list[str]) -> int:
    """Print the tables and the findings; return 1 if there are any."""
    root = Path(arguments[0] if arguments else ".")
    house = measure(root)
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
