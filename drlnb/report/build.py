"""Build a report of a run's files: summary, tasks, leases, curves, round anatomy, configuration."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from drlnb.fleet.launch import patent_limits
from drlnb.fleet.tasks.run_spec import RunSpec
from drlnb.records.errors import ConfigError, JournalError
from drlnb.records.journal import Journal
from drlnb.report.download import Download, Names, archive, scrub
from drlnb.report.page import Section, facts_table, journal_part, page, pairs_table, paragraphs
from drlnb.report.parts import pictures
from drlnb.runtime.files.run_directory import RunDir
from drlnb.views.drawing import words
from drlnb.views.drawing.payload import Content, Plain
from drlnb.views.drawing.view import View
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold
from drlnb.views.warmup import waterfall

__all__ = ["MAX_BARS", "MAX_BYTES", "Report", "build"]

#: Bars of the lease picture: keeps a report of 4 tasks x 400 rounds well below 500 KB.
MAX_BARS = 2000
#: Bars, and pixel columns of a learning curve, where that would make the page alone larger than it may be.
FEW_BARS, FEW_COLUMNS = 700, 100

#: Most bytes of a page with its journal: what a mail takes along without a thought.
MAX_BYTES = 500_000
#: Bytes of the words around a journal's link.
_SPARE = 1000


class Report(NamedTuple):
    """A report that was written."""

    path: Path
    n_bytes: int


def build(source: Journal | Path | str, path: Path | str, *, notes: str = "") -> Report:
    """Write a run as one HTML file.

    Parameters
    ----------
    source
        A run directory (its ``run.json`` gives the configuration), or a journal.
    path
        The file to write; it is replaced as a whole or not at all.
    notes
        Paragraphs to add below the summary, apart by empty lines.

    Raises
    ------
    ConfigError
        If the file cannot be written; the message has the reason.
    JournalError
        If there is no journal, or it cannot be read.
    """
    journal, run = _read(source)
    fold = _folded(journal, run)
    names = Names(journal, fold.n_rows)
    title = f"Training run {run['run']}" if run.get("run") else "Training run"
    began = {"started": run.get("created"), "drlnb": (run.get("versions") or {}).get("drlnb")}
    subtitle = ", ".join(f"{word} {value}" for word, value in began.items() if value)

    def made(download: Download) -> str:
        return page(
            title, subtitle, [*sections, Section(name="journal", heading="Journal", body=journal_part(download))]
        )

    for max_bars, n_columns in ((MAX_BARS, None), (FEW_BARS, FEW_COLUMNS)):
        sections = _sections(journal, fold, run, names, notes, max_bars, n_columns)
        without = made(Download(data=b"", n_rows=fold.n_rows))
        if len(without.encode()) <= MAX_BYTES - _SPARE:
            break
    text = made(archive(journal, names, MAX_BYTES - len(without.encode()) - _SPARE, fold.n_rows))
    target = Path(path)
    return Report(path=target, n_bytes=_write(target, text))


def _read(source: Journal | Path | str) -> tuple[Journal, Content]:
    if isinstance(source, Journal):
        return source, {}
    directory = Path(source)
    if not directory.is_dir():
        raise JournalError(f"{directory}: no such directory")
    run: Content = {}
    with contextlib.suppress(OSError, ValueError):  # a journal without run.json still makes a report
        spec = RunSpec.read(RunDir(directory))
        run = {**spec.to_plain(), "limits": patent_limits(spec)}
    return Journal.read(directory), run


def _scrubbed(view: View, names: Names) -> View:
    """Return a view without paths, addresses and names of machines."""
    facts = dict(view.facts)
    if view.module == "timeline":
        facts["lanes"] = [{**lane, "label": _label(lane, names)} for lane in facts["lanes"]]
        facts |= {"windows": True} if "window_s" in facts and facts["x"]["kind"] == "clock" else {}
    # Lines of charts, rows of lists and members are named by what is in the journal; tasks' names stay as they are.
    is_said = view.module == "chart" or facts.get("row_key") == "row" or view.name.startswith("batching.")
    for key in {"lines", "series"} & facts.keys() if is_said else ():
        facts[key] = names.said(facts[key])
    if "moments" in facts:
        facts["moments"] = names.said(facts["moments"])
    texts = {key: names.said(getattr(view, key)) for key in ("sentence", "names", "notes")}
    return replace(view, facts=facts, **texts)


def _label(lane: Content, names: Names) -> str:
    """Return a lane's label, of a slot or node with the node's number: it may be named after a machine."""
    label = str(lane["label"])
    node, _, device = label.rpartition("/")
    if lane["kind"] == "slot" and label:  # the second row of a slot has none
        return f"{names.alias.get(node, f'node{node}')} {device}"
    return names.said(label) if lane["kind"] == "node" else label


def _folded(journal: Journal, run: Plain) -> Fold:
    specs: list[Content] = list(run.get("tasks") or [])
    groups = {str(spec["name"]): str(spec["group"]) for spec in specs if spec.get("group")}
    fold = Fold(tasks=[str(spec["name"]) for spec in specs], groups=groups)
    fold.feed(entries_of(journal))
    return fold


def _sections(
    journal: Journal, fold: Fold, run: Plain, names: Names, notes: str, max_bars: int, n_columns: int | None
) -> list[Section]:
    specs: list[Content] = list(run.get("tasks") or [])
    views = pictures(fold, specs, max_bars=max_bars, n_columns=n_columns)
    summary = _summary(journal, fold, {name: view for name, (_, view) in views.items()})
    if limits := run.get("limits"):
        summary["patents' rules"] = scrub("; ".join(limits))
    return [
        Section(name="summary", heading="Summary", body=f"{paragraphs(notes)}{facts_table(summary)}"),
        *(Section(name=name, heading=head, view=_scrubbed(view, names)) for name, (head, view) in views.items()),
        Section(name="configuration", heading="Configuration", body=_configuration(run, specs)),
    ]


def _summary(journal: Journal, fold: Fold, views: Mapping[str, View]) -> dict[str, str]:
    leases, streams = views["leases"], words.plural(len(journal.streams), "stream")
    facts = {
        "tasks": views["tasks"].sentence,
        "origin": fold.origin,
        "time": words.duration(fold.now_s),
        "leases": words.count(fold.pool.n_leases.total()),
        "slots computing": f"{words.percent(leases.value('utilisation'))} of the time from first grant to last release",
        "longest wait for a slot": words.duration(leases.value("longest_wait_s")),
        "journal": f"{words.count(fold.n_rows)} rows in {streams}",
    }
    if "shares" in views:
        facts["sharing"] = views["shares"].sentence
    if "warmup" in views:
        facts["warm-up"] = views["warmup"].sentence
    elif any(len(attempt.rests) for attempts in fold.warmups.values() for attempt in attempts.values()):
        facts["warm-up"] = waterfall.waterfall(fold).sentence
    unswapped = [(of.unavailable, name) for name, of in fold.swappings.items() if of.unavailable and not of.active]
    if unswapped:
        tasks = {why: ", ".join(name for other, name in unswapped if other == why) for why, _ in unswapped}
        facts["swapping"] = "; ".join(f"{names}: {why}" for why, names in tasks.items())
    if n_torn := sum(stream.torn for stream in journal.streams.values()):
        facts["torn"] = f"the last line of {words.plural(n_torn, 'stream')} was cut off and is left out"
    return facts


def _configuration(run: Plain, specs: Sequence[Plain]) -> str:
    rows = [
        {
            "task": spec.get("name", ""),
            "environment": scrub(str(spec.get("env", ""))),
            "algorithm": spec.get("algo", ""),
            "optimizer": scrub(str(spec.get("optimizer", ""))),
            "samples": spec.get("n_samples", ""),
            "batch size": spec.get("batch_size", ""),
            "seed": spec.get("seed", ""),
            "steps": words.count(int(spec.get("total_timesteps", 0))),
            "environments": spec.get("n_envs", ""),
            "collectors": spec.get("n_collectors", ""),
            "learners": spec.get("n_learners", ""),
            "group": spec.get("group") or "-",
        }
        for spec in specs
    ]
    tasks = [{key: value for key, value in row.items() if value != ""} for row in rows]  # work without environments
    if not tasks:
        return '<p class="dim">No run.json that can be read is beside this journal: the configuration is not known.</p>'
    chosen = {
        key: scrub(", ".join(f"{name} {value}" for name, value in run[key].items()))
        for key in ("planners", "settings", "versions")
        if run.get(key)
    }
    hyper = {
        str(spec["name"]): scrub(", ".join(f"{k}={v}" for k, v in (spec.get("hyperparameters") or {}).items()))
        for spec in specs
        if "hyperparameters" in spec
    }
    more = f"<details><summary>Hyperparameters</summary>{facts_table(hyper)}</details>" if hyper else ""
    return f"{pairs_table(tasks)}{facts_table(chosen)}{more}"


def _write(path: Path, text: str) -> int:
    beside = path.parent / f".{path.name}.{os.getpid()}"
    try:
        n_bytes = beside.write_bytes(text.encode())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"{path}: {error.strerror}") from None
    return n_bytes
