"""List the pictures of a report in their order, with their headings."""

from collections.abc import Sequence

from drlnb.fleet.whatif import swapping as whatif
from drlnb.views import fleet, learning, rounds
from drlnb.views.batching import measured as batching
from drlnb.views.distribution.measured import spread
from drlnb.views.distribution.topology import topology
from drlnb.views.drawing.payload import Plain
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold
from drlnb.views.leasing import gantt
from drlnb.views.placement import measured as placement
from drlnb.views.swapping import computed, measured
from drlnb.views.warmup import waterfall
from drlnb.views.warmup.lines import tasks_with_starts

__all__ = ["MAX_TASKS", "pictures"]

#: Most tasks that have pictures of their own: keeps a report short enough to be read.
MAX_TASKS = 4

#: With more tasks than so many, fewer of their rounds are drawn.
_FEW_TASKS, _FEW_ROUNDS = 2, 8


def pictures(
    fold: Fold, specs: Sequence[Plain], *, max_bars: int, n_columns: int | None = None
) -> dict[str, tuple[str, View]]:
    """Return the pictures of a run: section -> heading and view.

    Parameters
    ----------
    fold
        The run's columns.
    specs
        The run's tasks as ``run.json`` holds them.
    max_bars
        Most bars of the lease picture.
    n_columns
        Most pixel columns of a learning curve; None: as the panel has them.
    """
    views = {
        "tasks": ("Tasks", fleet.tasks(fold, specs)),
        "leases": ("Who held a slot when", gantt.gantt(fold, max_bars=max_bars)),
    }
    if fold.pool.n_leases:
        views["shares"] = ("What sharing saved, and what it cost", gantt.shares(fold))
    views |= {
        "learning": ("Learning curves", learning.curves(fold, n_columns=n_columns)),
        **_evaluated(fold, n_columns),
        "rounds": ("Where each round's time went", rounds.anatomy(fold)),
    }
    of = spread(fold)
    if of and len(of.hosts) > 1:
        views["topology"] = ("How the newest version reached the hosts", topology(of))
    return {**views, **_placement(fold), **_warmup(fold), **_batching(fold), **_swapping(fold)}


def _placement(fold: Fold) -> dict[str, tuple[str, View]]:
    """Return what there is to see of placement: nothing where each task was planned once, on one slot."""
    plans = fold.placement.plans
    if len(plans) == len({plan.of.task for plan in plans}) and all(len(plan.of.slots) < 2 for plan in plans):
        return {}
    views = {
        "gangs": ("Which slots each task had", placement.gantt(fold)),
        "plans": ("Plans of placement, and what each came after", placement.plans(fold)),
    }
    newest = {fold.pool.short(plan.of.task): plan.of for plan in plans}
    several = [name for name, of in newest.items() if len(of.candidates) > 1 or len(of.weighed) > len(of.slots)]
    for i, name in enumerate(several[:MAX_TASKS]):
        views[f"why{i}"] = f"{name}: what its newest plan was weighed against", placement.why(fold, name)
        views[f"choice{i}"] = f"{name}: among which slots its newest plan chose", placement.choice(fold, name)
    return views


def _evaluated(fold: Fold, n_columns: int | None) -> dict[str, tuple[str, View]]:
    """Return the curves of what supervised work was evaluated by: nothing where none was."""
    named = {name: None for task in fold.tasks.values() if not task.acts for name in task.metric_names()}
    scores = [name for name in named if name.startswith("eval/")][:MAX_TASKS]
    return {
        f"evaluation{i}": (
            f"Evaluations: {name.removeprefix('eval/')}",
            learning.curves(fold, name, n_columns=n_columns),
        )
        for i, name in enumerate(scores)
    }


def _warmup(fold: Fold) -> dict[str, tuple[str, View]]:
    """Return what there is to see of warm-up: nothing where no collector was ended between rounds."""
    names = tasks_with_starts(fold)
    if not names:
        return {}
    n_rounds = waterfall.N_ROUNDS if len(names) <= _FEW_TASKS else _FEW_ROUNDS
    views = {
        "warmup": (
            "When each collector started, and whether it was ready in time",
            waterfall.waterfall(fold, n_rounds=n_rounds),
        ),
        "starts": ("How long starts take", waterfall.starts(fold)),
    }
    for i, name in enumerate(names[:MAX_TASKS]):
        views[f"history{i}"] = (f"{name}: rounds that plans rest on", waterfall.rounds(fold, name))
        view = waterfall.curve(fold, name)
        if len(view.columns["points"]["x"]):
            views[f"curve{i}"] = (f"{name}: what another start would have cost", view)
    return views


def _batching(fold: Fold) -> dict[str, tuple[str, View]]:
    """Return what there is to see of splits: nothing where no task has several learners or collectors."""
    views: dict[str, tuple[str, View]] = {}
    known = [(name, role) for name, of in fold.batchings.items() for role in of.shared]
    for i, (name, role) in enumerate(known[:MAX_TASKS]):
        of = f"{name}, {batching.ROLES[role]}"
        views |= {
            f"shares{i}": (f"{of}: newest splits", batching.shares(fold, batching.LATEST, name, role)),
            f"sizes{i}": (f"{of}: what each one was given", batching.sizes(fold, name, role)),
            f"speeds{i}": (f"{of}: speeds", batching.speeds(fold, name, role)),
            f"ledger{i}": (f"{of}: what was used, and what was not", batching.ledger(fold, name, role)),
        }
    return views


def _swapping(fold: Fold) -> dict[str, tuple[str, View]]:
    """Return what there is to see of training steps under a memory budget: nothing where no task has one."""
    views: dict[str, tuple[str, View]] = {}
    active = [(name, of) for name, of in fold.swappings.items() if of.active]
    for i, (name, of) in enumerate(active[:MAX_TASKS]):
        for kind, section, head in (("peak", "swapping", "peaks"), ("time", "steps", "seconds")):
            head = f"{name}: {head} of training steps, measured and predicted"
            views[f"{section}{i}"] = head, measured.steps(fold, kind, name)
        if of.profile is not None:
            case = whatif.task_case(name, of)
            plan = whatif.explain(case, whatif.in_force(case, of))
            views[f"plan{i}"] = f"{name}: what its plan does with each saved storage, and why", computed.plan(plan)
            views[f"lanes{i}"] = f"{name}: work and copies of one step by that plan", computed.lanes(plan)
    return views
