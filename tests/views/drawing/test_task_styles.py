"""A run's task has its letter and colour for ever: from its number in the journal, whatever is heard of first."""

import pytest

from drlnb.views import fleet, learning
from drlnb.views.drawing import theme
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.leasing import gantt
from tests.views.journals import Run
from tests.views.pictures import until


def marks(styles):
    return {style.name: (style.letter, style.colour, style.hatch) for style in styles}


def numbered(run, **numbers):
    """Write each task's number into the first row of its stream, as its master does."""
    for name, number in numbers.items():
        run.streams[f"task-{name}-a1"][0].config["number"] = number
    return run


def three(order):
    """Three tasks of a run, and somebody else, who take the slot in an order."""
    run = Run().slot()
    for name in order:
        if name != "mine":
            run.task(name)
    for n, name in enumerate(order):
        run.lease(name, float(n), float(n), n + 0.5, n=n)
    return numbered(run, a=0, b=1, c=2)


@pytest.mark.parametrize("order", ["abc", "cab", "bca"])
def test_letters_do_not_follow_the_order_of_the_first_leases(order):
    """As after a resume, where another task may be first: A is the run's first task, in this colour."""
    known = marks(theme.task_styles(fold_of(three(order).journal())))
    assert known == {"a": ("A", "#E69F00", ""), "b": ("B", "#56B4E9", ""), "c": ("C", "#009E73", "")}


def test_who_else_holds_slots_takes_no_letter_of_the_run():
    """A loop that came first has a small letter, and its coming changes no other."""
    journal = three(["mine", "c", "a", "b"]).journal()
    known = marks(theme.task_styles(fold_of(journal)))
    assert {name: mark[0] for name, mark in known.items()} == {"a": "A", "b": "B", "c": "C", "mine": "a"}
    assert known["mine"][2] == "-"
    assert marks(theme.task_styles(fold_of(until(journal, 0.2)))) == known


def test_a_task_has_its_letter_before_it_begins():
    """As soon as the run's list names it, in a panel that has heard of nothing else."""
    fold = Fold(tasks=["a", "b", "c"])
    early = marks(theme.task_styles(fold))
    fold.feed(entries_of(three("cba").journal()))
    assert marks(theme.task_styles(fold)) == early == marks(theme.styles("abc"))


def test_every_picture_has_the_same_letters():
    """Lanes, curves and the table of tasks, with the run's list and without."""
    fold = fold_of(three("cab").journal())
    specs = [{"name": name} for name in "abc"]
    series = [view.facts["series"] for view in (gantt.gantt(fold), fleet.tasks(fold, specs), learning.curves(fold))]
    assert [{one["name"]: one["letter"] for one in of} for of in series] == [{"a": "A", "b": "B", "c": "C"}] * 3
    assert [lane["label"] for lane in gantt.gantt(fold).facts["lanes"]][1:] == ["C waits", "A waits", "B waits"]
