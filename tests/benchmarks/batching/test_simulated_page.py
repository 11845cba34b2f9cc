"""The page on simulated batching quotes what was measured."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/batching-simulated.md"
RESULTS = ROOT / "benchmarks/results/batching-2-cores.json"
#: What stands behind a title -> behind the names of its rows.
WAITING = {"": "", ", 6 of 8": "-q6"}


def _line(*cells):
    return "| " + " | ".join(cells) + " |"


def tables(rows):
    """Return the lines of the page's tables that hold figures."""

    def value(name, digits=2):
        return f"{rows[name]['value']:.{digits}f}"

    def ratio(name, digits=3):
        return f"{rows[name]['ratio']:.{digits}f}"

    names = ("static", "ewma", "jump-reset", "ddqn")
    yield _line("over the optimum", *(value(f"m1-{name}-optimum", 3) for name in names))
    yield _line("over `equal`", *(ratio(f"m1-{name}") for name in names))
    for dwell in (5, 20, 100):
        cells = []
        for name in (f"m2-dwell{dwell}-ewma", f"m2-dwell{dwell}-jump-reset"):
            lost = rows[f"{name}-lost"]["value"]
            cells += [value(f"{name}-full"), f"{value(name)} ({value(f'{name}-samples')}, {lost:.1%})"]
        yield _line(str(dwell), *cells)
    for title, name in {"static": "static", **{f"bursts of {d}": f"memoryless-{d}" for d in (5, 20, 100)}}.items():
        yield _line(title, *(ratio(f"m3-{name}-{planner}") for planner in ("seasonal", "ddqn", "auto")))
    foreseen = {"periods of 10 and 13": "held-out", "periods of 17, 19, 21": "beyond", "correlated": "correlated"}
    cases = [(f"{title}{who}", f"{name}{q}") for title, name in foreseen.items() for who, q in WAITING.items()]
    cases += [("12 members, periods of 10 and 13", "held-out-12"), ("12 members, correlated", "correlated-12")]
    for title, name in cases:
        measured = ("jump-reset-optimum", "seasonal", "ddqn", "auto")
        yield _line(title, *(value(f"m4-{name}-{each}") for each in measured))
    shown = {
        "static": "static",
        "bursts of 5": "dwell5",
        "periods of 10 and 13": "held-out",
        "correlated": "correlated",
    }

    def three(name):
        return f"{value(name)} ({value(f'{name}-samples')}, {rows[f'{name}-lost']['value']:.1%})"

    for title, name in shown.items():
        gathered = (three(f"patent-{name}-{planner}") for planner in ("jump-reset", "ddqn", "patent"))
        yield _line(title, value(f"patent-{name}-full"), *gathered)
    for title, reward in {
        "objectives": "objectives",
        "goodput": "goodput",
        "per member, as `ddqn`'s": "per-member",
    }.items():
        yield _line(title, *(three(f"ablation-{name}-{reward}") for name in shown.values()))


def test_the_page_quotes_the_results():
    """Every figure of its tables is that of the file, rounded."""
    report = json.loads(RESULTS.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    lines = list(tables({row["id"]: row for row in report["rows"]}))
    assert len(lines) == 2 + 3 + 4 + 8 + 4 + 3
    assert [line for line in lines if line not in text] == []
    others = [row["value"] for row in report["rows"] if "-seed-" in row["id"]]
    assert all(f"{value:.2f}" in text for value in others)
    assert len(others) == 4
