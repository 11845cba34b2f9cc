"""Traces of jobs: what is read, what is refused, and which windows and families there are."""

import hashlib
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.records.errors import ConfigError
from drlnb.sim.placement import TraceJob, load_trace

HEAD = "job_id,submit_time_s,n_gpus,duration_s"


@pytest.fixture
def written(tmp_path):
    """Return what writes a trace and returns its path."""

    def write(text, name="jobs.csv"):
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def refusal(file):
    """Return why a trace is refused: one line."""
    with pytest.raises(ConfigError) as raised:
        load_trace(file)
    assert "\n" not in str(raised.value)
    assert str(file) in str(raised.value)
    return str(raised.value)


# ------------------------------------------------------------------ what is read
def test_rows_are_sorted_by_submission_and_other_columns_ignored(written):
    """Columns may come in any order; jobs of no duration are dropped and counted."""
    file = written("status,duration_s,n_gpus,vc,job_id,submit_time_s\nok,5,2,t,b,7\nbad,0,1,t,c,1\nok,9.5,1,,a,3\n")
    trace = load_trace(file)
    assert trace.jobs == (TraceJob("a", 3.0, 1, 9.5, ""), TraceJob("b", 7.0, 2, 5.0, "t"))
    assert (trace.name, trace.n_dropped) == ("jobs.csv", 1)
    assert trace.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_byte_order_mark_and_other_ends_of_lines_are_read(written):
    """As spreadsheets write them; blank lines are nothing, cells may have spaces around them."""
    plain = load_trace(written(f"{HEAD}\na,1,2,3\nb,4,1,6\n")).jobs
    odd = "\ufeff" + f"{HEAD}\r\na,1, 2 ,3\r\n\r\nb,4,1.0,6\r\n"
    assert load_trace(written(odd, "odd.csv")).jobs == plain
    assert load_trace(written(f"{HEAD}\ra,1,2,3\rb,4,1,6\r", "old.csv")).jobs == plain


def test_tenant_is_read_before_vc(written):
    """Either column names the tenant."""
    assert load_trace(written(f"vc,{HEAD},tenant\nv,a,1,2,3,t\n")).jobs[0].tenant == "t"
    assert load_trace(written(f"vc,{HEAD}\nv,a,1,2,3\n")).jobs[0].tenant == "v"
    assert load_trace(written(f"{HEAD}\na,1,2,3,more\n")).jobs[0].tenant == ""


@pytest.mark.slow
def test_a_million_rows_are_read_and_the_last_bad_one_is_named(written):
    """In one pass; a window of them is cut like any other."""
    rows = [f"j{i},{i},{1 + i % 8},{60 + i % 9000}" for i in range(1_000_000)]
    trace = load_trace(written("\n".join([HEAD, *rows])))
    assert len(trace.jobs) == 1_000_000
    assert [job.job for job in trace.window(999_990, 10)] == [f"j{i}" for i in range(999_990, 1_000_000)]
    assert "row 1000002: job_id 'j7' stands in row 9 already" in refusal(written("\n".join([HEAD, *rows, "j7,0,1,1"])))


# ------------------------------------------------------------------ what is refused
def test_all_missing_columns_are_listed(written):
    """Beside what the file has."""
    text = refusal(written("id;submit;gpus\n1;2;3\n"))
    assert "no column job_id, submit_time_s, n_gpus, duration_s" in text
    assert "'id;submit;gpus'" in text
    assert "no column submit_time_s;" in refusal(written("job_id,n_gpus,duration_s\n1,2,3\n"))
    assert "no column job_id" in refusal(written(""))
    assert len(refusal(written("x" * 100_000))) < 600


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("a,1,0,5", "n_gpus must be a whole number >= 1, got '0'"),
        ("a,1,0.5,5", "n_gpus must be a whole number >= 1, got '0.5'"),
        ("a,1,1.5,5", "n_gpus must be a whole number >= 1, got '1.5'"),
        ("a,1,-2,5", "n_gpus must be a whole number >= 1, got '-2'"),
        ("a,1,inf,5", "n_gpus must be a whole number >= 1, got 'inf'"),
        ("a,1,2,", "duration_s must be seconds >= 0, got ''"),
        ("a,1,2", "duration_s must be seconds >= 0, got ''"),
        ("a,1,2,-3", "duration_s must be seconds >= 0, got '-3'"),
        ("a,1,2,nan", "duration_s must be seconds >= 0, got 'nan'"),
        ("a,1,2,1e999", "duration_s must be seconds >= 0, got '1e999'"),
        ("a,,2,3", "submit_time_s must be seconds >= 0 (no date), got ''"),
        ("a,-1,2,3", "submit_time_s must be seconds >= 0 (no date), got '-1'"),
        (
            "a,2017-10-07T01:11:39+02:00,2,3",
            "submit_time_s must be seconds >= 0 (no date), got '2017-10-07T01:11:39+02:00'",
        ),
        (",1,2,3", "job_id is empty"),
        ("z,1,2,3", "job_id 'z' stands in row 2 already"),
    ],
)
def test_a_bad_row_is_told_with_its_column_and_value(written, row, words):
    """Rows count from the header, which is the first one."""
    assert f"row 3: {words}" in refusal(written(f"{HEAD}\nz,0,1,1\n{row}\n"))


def test_the_first_five_bad_rows_are_listed(written):
    """And how many more there are."""
    text = refusal(written(f"{HEAD}\n" + "".join(f"j{i},0,0,1\n" for i in range(9))))
    assert [f"row {i}:" in text for i in range(2, 9)] == [True] * 5 + [False] * 2
    assert text.endswith("and 4 more rows")


def test_what_is_no_csv_text_is_refused(written, tmp_path):
    """A file that is not there, a directory, another encoding, and a trace without a job."""
    assert "cannot be read" in refusal(tmp_path / "none.csv")
    assert "cannot be read" in refusal(tmp_path)
    assert "UTF-8" in refusal(written(HEAD.encode("utf-16")))
    assert "no job with a duration above 0" in refusal(written(f"{HEAD}\n"))
    assert "must be a CSV file" in refusal(written(f'{HEAD}\n"{"x" * 200_000}",1,2,3\n'))


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "1", "2.5", "-1", "", "nan", "\ufeff", '"', "\0", "é"]), max_size=6))
)
def test_any_rows_are_read_or_refused_in_one_line(tmp_path_factory, rows):
    """Nothing else comes of rows of whatever cells: jobs are sorted, whole and positive, or one line says what not."""
    file = tmp_path_factory.mktemp("drawn") / "jobs.csv"
    file.write_text("\n".join([HEAD, *(",".join(row) for row in rows)]), encoding="utf-8")
    try:
        jobs = load_trace(file).jobs
    except ConfigError:
        refusal(file)
        return
    assert [job.submitted_s for job in jobs] == sorted(job.submitted_s for job in jobs)
    assert all(job.n_slots >= 1 and job.work_s > 0 for job in jobs)
    assert len({job.job for job in jobs}) == len(jobs)


# ------------------------------------------------------------------ windows and families
def rows_of(*tenants):
    """Return a trace of tenants, each a name, a number of jobs, the share on two slots and their seconds."""
    lines = [HEAD + ",tenant"]
    for name, n, gang_frac, work_s in tenants:
        lines += [f"{name}{i},{i},{1 + (i < gang_frac * n)},{work_s},{name}" for i in range(n)]
    return "\n".join(lines)


def test_families_are_of_tenants(written):
    """Gangs: 100 jobs, half of them on several slots; mixed: all but those who send bursts of small jobs."""
    trace = load_trace(
        written(
            rows_of(
                ("gangs", 100, 0.5, 60),
                ("few", 99, 1.0, 60),
                ("small", 150, 0.49, 60),
                ("bursts", 300, 0.01, 60),
                ("probes", 300, 0.5, 59),
            )
        )
    )
    assert {job.tenant for job in trace.families["gang"]} == {"gangs"}
    assert {job.tenant for job in trace.families["mixed"]} == {"gangs", "few", "small"}
    assert {job.tenant for job in trace.families["all"]} == {"gangs", "few", "small", "bursts"}
    assert len(trace.jobs) == 949


def test_without_tenants_or_enough_jobs_a_family_is_all(written):
    """And the window says so."""
    trace = load_trace(written(HEAD + "\n" + "\n".join(f"{i},{i},1,60" for i in range(70))))
    assert [trace.window(family=name).family for name in ("gang", "mixed", "all")] == ["all"] * 3
    few = load_trace(written(rows_of(("small", 100, 0.0, 60), ("gangs", 64, 1.0, 60))))
    assert few.window(family="gang").family == "all"
    enough = load_trace(written(rows_of(("small", 100, 0.2, 60), ("gangs", 100, 1.0, 60))))
    assert enough.window(family="gang").family == "gang"


def test_a_window_cuts_what_is_too_long_or_large_and_counts_it(written):
    """All are submitted at 0, or keep their times from the first one's on."""
    trace = load_trace(written(f"{HEAD}\nx,5,1,100\na,10,64,100\nb,25,2,100000\nc,30,4,86400\n"))
    window = trace.window(1, 3)
    assert list(window) == [
        TraceJob("a", 0.0, 32, 100.0),
        TraceJob("b", 0.0, 2, 86_400.0),
        TraceJob("c", 0.0, 4, 86_400.0),
    ]
    assert (window.n_cut_s, window.n_cut_slots, len(window)) == (1, 1, 3)
    kept = trace.window(1, 3, cap_s=1e6, max_gpus=64, arrivals=True)
    assert [(job.submitted_s, job.n_slots, job.work_s) for job in kept] == [
        (0.0, 64, 100.0),
        (15.0, 2, 100_000.0),
        (20.0, 4, 86_400.0),
    ]
    assert (kept.n_cut_s, kept.n_cut_slots) == (0, 0)


def test_a_window_that_is_not_there_is_refused(written):
    """With how many jobs there are."""
    trace = load_trace(written(f"{HEAD}\na,1,1,100\nshort,1,1,59\n"))
    assert len(trace.window(0, 1)) == 1
    with pytest.raises(ConfigError, match="has 1 jobs of a minute or more in family all: no window of 64 from 0"):
        trace.window(family="all")
    with pytest.raises(ConfigError, match=r"start must be >= 0, got -1; n_jobs must be >= 1, got 0; cap_s .* max_gpus"):
        trace.window(-1, 0, cap_s=0, max_gpus=0)
    with pytest.raises(ConfigError, match="family must be one of gang, mixed, all, got 'gangs'; did you mean 'gang'"):
        trace.window(family="gangs")


def test_the_sample_travels_along_with_its_source():
    """At most 100 KB, with who made it, under which licence, and what was changed."""
    trace = load_trace()
    assert {name: len(jobs) for name, jobs in trace.families.items()} == {"gang": 1734, "mixed": 2719, "all": 2719}
    assert {job.tenant for job in trace.families["gang"]} == {"2869ce", "7f04ca", "ee9e8c"}
    folder = files("drlnb.sim.placement")
    assert len((folder / "philly_sample.csv").read_bytes()) <= 100_000
    words = (folder / "philly_sample.txt").read_text(encoding="utf-8")
    assert all(word in words for word in ("CC BY 4.0", "Jeon", "msr-fiddle/philly-traces", "Changes"))
