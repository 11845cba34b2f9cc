"""The journal within a page: what is in the archive, and what of its author's machines is not."""

import gzip
import io
import json
import string
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.records.columns import placement, warmup
from drlnb.report import download as module
from drlnb.report.download import Names, archive, scrub
from tests.views.journals import Run, two_tasks

MUCH = 10**6


def members(download):
    """Return the files of an archive, by name, with what their heads say."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(download.data))) as tar:
        return {entry.name: (entry, tar.extractfile(entry).read().decode()) for entry in tar}


def rows_of(journal):
    return [row for s in journal.streams.values() for row in (s.header, *s.records)]


def names_of(journal):
    return Names(journal, len(rows_of(journal)))


def packed(journal, limit=MUCH):
    return archive(journal, names_of(journal), limit, len(rows_of(journal)))


def with_node(name):
    return Run().slot(f"{name}/cpu0").journal()


# ---------------------------------------------------------------------- the archive
def test_equal_journals_are_equal_bytes():
    """No time, owner or order of this process is in it."""
    first, second = packed(two_tasks().journal()), packed(two_tasks().journal())
    assert first == second
    assert first.data[4:8] == bytes(4), "the second in which it was packed"
    heads = [entry for entry, _ in members(first).values()]
    assert {(head.mtime, head.uid, head.gid, head.uname, head.gname) for head in heads} == {(0, 0, 0, "", "")}


def test_every_row_is_in_it_once_and_in_order():
    """One file per stream below ``journal``, one line per row, its header first; as many as are said to be there."""
    journal = two_tasks().journal()
    made = packed(journal)
    files = {name: text.splitlines() for name, (_, text) in members(made).items()}
    assert list(files) == [f"journal/{name}.jsonl" for name in journal.streams]
    for (name, stream), lines in zip(journal.streams.items(), files.values(), strict=True):
        kinds = [json.loads(line)["r"] for line in lines]
        assert kinds == [type(row).__name__ for row in (stream.header, *stream.records)], name
    assert made.n_rows == sum(len(lines) for lines in files.values())


def test_what_does_not_fit_has_its_rows_counted_and_no_data():
    """One byte less than it takes is too little."""
    journal = two_tasks().journal()
    limit = -(-len(packed(journal).data) * 4 // 3)  # base64 makes four bytes of three
    assert packed(journal, limit).data
    short = packed(journal, limit - 2)
    assert (short.data, short.n_rows) == (b"", len(rows_of(journal)))


def test_what_cannot_fit_is_not_packed(monkeypatch):
    """As many rows as 7 bytes each leave no room for: no row of it is rewritten."""
    journal = two_tasks().journal()
    names, n_rows = names_of(journal), len(rows_of(journal))
    monkeypatch.setattr(names, "said", lambda value: pytest.fail(f"{value} was rewritten"))
    assert archive(journal, names, n_rows * 7, n_rows).n_rows == n_rows


# ---------------------------------------------------------------------- names of machines
def test_machines_have_numbers_in_order_of_their_appearance():
    """The same one everywhere: alone, before a device, within a sentence, as a key of a mapping."""
    run = Run().slot("zeus.lab/gpu0").slot("hera.lab/gpu0").slot("zeus.lab/gpu1")
    names = names_of(run.journal())
    assert names.alias == {"zeus.lab": "node0", "hera.lab": "node1"}
    said = names.said({"hera.lab": ["zeus.lab/gpu1", "lost zeus.lab, hera.lab is up", 7, None, True]})
    assert said == {"node1": ["node0/gpu1", "lost node0, node1 is up", 7, None, True]}


@pytest.mark.parametrize(
    ("node", "text", "said"),
    [
        ("gpu", "gpu memory of a gpu", "gpu memory of a gpu"),
        ("gpu", "gpu/cuda0", "node0/cuda0"),
        ("gpu", "gpu", "node0"),
        ("zeus", "zeus fell, zeus2 and my-zeus did not", "node0 fell, zeus2 and my-zeus did not"),
        ("0", "0/cpu0 of 0", "0/cpu0 of 0"),
    ],
)
def test_a_name_is_replaced_where_it_is_one(node, text, said):
    """A short one only alone or before a device, a longer one as a whole word, a number (as Dask gives them) never."""
    assert names_of(with_node(node)).said(text) == said


def test_the_longest_name_wins():
    """One machine's name may be the beginning of another's."""
    run = Run().slot("zeus/cpu0").slot("zeus.lab.example/cpu0")
    assert names_of(run.journal()).said("zeus.lab.example and zeus") == "node1 and node0"


def test_hosts_and_nodes_of_any_record_are_machines():
    """Wherever a field says so: also the keys of ``nodes``."""
    run = Run().slot()
    run.say(run.pool, placement.NodeAdded(t=0.0, node="worker-a", host="zeus.lab.example", n_collector_slots=2))
    known = names_of(run.journal()).alias
    assert {"worker-a", "zeus.lab.example"} <= known.keys()


def test_of_a_very_long_journal_the_pools_streams_name_the_machines(monkeypatch):
    """What a task's stream alone names is not looked for among a hundred thousand rows."""
    run = two_tasks().slot("zeus.lab/cpu0")
    run.arrived("a", 1.0, 2).say("task-a-a1", warmup.StopCollector(collector=0, node="hera.lab", round=1))
    assert {"zeus.lab", "hera.lab"} <= names_of(run.journal()).alias.keys()
    monkeypatch.setattr(module, "_MOST_ROWS", 1)
    assert {"zeus.lab", "hera.lab"} & names_of(run.journal()).alias.keys() == {"zeus.lab"}


# ---------------------------------------------------------------------- paths and addresses
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"File C:\Users\ann\lab\env.py failed", "File env.py failed"),
        ("/opt/lab/env.py:12: broke", "env.py:12: broke"),
        ("'/home/ann/a.py' and \"/home/ann/b.py\"", "'a.py' and \"b.py\""),
        ("tls://gpu7:8786 at 10.1.2.3:40 and 10.1.2.3", "(address) at (address) and (address)"),
        ("version 1.2.3 of 4/5", "version 1.2.3 of 4/5"),
    ],
)
def test_of_a_path_the_last_part_stays_and_of_an_address_nothing(text, said):
    """Of Unix or Windows, in quotes or not; what only looks like one stays."""
    assert scrub(text) == said


@given(parts=st.lists(st.text(string.ascii_letters + string.digits + "._-", min_size=1), min_size=2, max_size=6))
def test_no_directory_is_left(parts):
    """Whatever a path is made of, its last part is all that remains, and nothing is left to do."""
    assert scrub("at /" + "/".join(parts)) == scrub(scrub("at /" + "/".join(parts))) == f"at {parts[-1]}"
