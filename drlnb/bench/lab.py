"""``drlnb bench lab --browser``: what do panels cost in a real JupyterLab, in bytes, seconds and what is left?

Everything that a person waits for can only be measured in a browser, so without ``--browser`` the rows are only named.
The load of the machine is printed: two busy cores make each of these times an upper bound.
"""

from collections.abc import Sequence

from drlnb.bench.groups import BenchParser, say, summary
from drlnb.bench.jupyter import missing
from drlnb.bench.lab_page import BLOCK_S
from drlnb.bench.report import Bar, Report, Row, load, row_lines

__all__ = ["ROWS", "main"]

_WIDGET = "the same picture as plotly FigureWidget"

#: Every row without its samples: the bars, in the order in which they are measured.
ROWS = {
    row.id: row
    for row in (
        Row(
            id="first-render",
            what="lease panel: from the start of its cell to its first picture",
            against=_WIDGET,
            bar=Bar("value", 1.0),
        ),
        Row(
            id="first-render-bytes",
            what="lease panel: bytes from the kernel until its first picture",
            unit="bytes",
            against=_WIDGET,
            bar=Bar("ratio", 1 / 10),
        ),
        Row(
            id="click-idle",
            what="from a click to the button's pending state, idle kernel",
            against="ipywidgets Button, from a click to the text that its callback changes",
            bar=Bar("value", 0.1),
        ),
        Row(
            id="click-busy",
            what=f"from a click to the button's pending state while a cell blocks the kernel for {BLOCK_S:g} s",
            against="ipywidgets Button in such a cell, from a click to the text that its callback changes",
            bar=Bar("value", 0.1),
        ),
        Row(
            id="hub-cpu",
            what="CPU time of the hub thread per turn (4 a second) and visible panel, three live tasks",
            against="batch_update of plotly FigureWidget with the same run's lease picture, 4 per second",
            bar=Bar("value", 0.002),
        ),
        Row(
            id="hub-bytes",
            what="bytes per second and visible panel, three live tasks",
            unit="bytes/s",
            against="batch_update of plotly FigureWidget with the same run's lease picture, 4 per second",
            bar=Bar("value", 20_000),
        ),
        Row(
            id="reload",
            what="from F5 to the restored picture of the desk, notebook saved, cache warm",
            against="JupyterLab alone: a notebook with one line of text, from F5 to that line",
            bar=Bar("value", 3.0),
        ),
        Row(id="reload-added", what="of which the desk's own: the difference to JupyterLab alone, pair by pair"),
        Row(
            id="report-size",
            what="report of the run, all sections",
            unit="bytes",
            against="plotly's page of the lease picture alone, include_plotlyjs=True",
            bar=Bar("value", 500_000),
        ),
        Row(
            id="report-draw",
            what="the report's first picture, network off, from the start of its load",
            against="plotly's page, network off",
            bar=Bar("value", 1.0),
        ),
        Row(
            id="left",
            what="threads, widgets, comms and processes left after 5 re-runs and close()",
            unit="things",
            bar=Bar("value", 0.0),
        ),
    )
}


def _parser() -> BenchParser:
    parser = BenchParser("lab", "Measure panels and reports in a real JupyterLab.")
    parser.add_argument("--browser", action="store_true", help="measure (about 2 min); without it rows are only named")
    parser.number("repeats", 3, least=1, help="interleaved pairs per row")
    return parser


def main(argv: Sequence[str]) -> int:
    """Measure and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench lab``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    args = _parser().parse(argv)
    report = Report(bench="lab")
    if args.json is not None:
        report.write(args.json)
    say(report.header())
    report.rows = _rows(browser=args.browser, repeats=args.repeats)
    say(f"load at the end {load():.2f}")
    for line in [line for row in report.rows for line in row_lines(row)]:
        say(line)
    if args.json is not None:
        report.write(args.json)
    say(summary(report))
    return report.exit_code(strict=args.strict)


def _rows(*, browser: bool, repeats: int) -> list[Row]:
    if not browser:
        return [_without(row, "needs a browser: add --browser", skipped=True) for row in ROWS.values()]
    if reason := missing():
        return [_without(row, reason, skipped=False) for row in ROWS.values()]
    from drlnb.bench.lab_rows import measure

    found = measure(repeats)
    return [found.get(name, _without(row, "not reached", skipped=False)) for name, row in ROWS.items()]


def _without(row: Row, why: str, *, skipped: bool) -> Row:
    return Row(
        id=row.id,
        what=row.what,
        unit=row.unit,
        against=row.against,
        bar=row.bar,
        not_measured=why,
        skipped=skipped,
    )
