"""Show the training steps of a run under swap plans, and change budget, planner and single rows while it trains."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.whatif import swapping as whatif
from drlnb.fleet.whatif.swapping import Case, Explained
from drlnb.views.drawing.view import View
from drlnb.views.folds.swapping import SwapFold
from drlnb.views.swapping import compared, computed, measured
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.frame import Plain, button
from drlnb.widgets.panels.swapping.swaps import Source, Swaps, change
from drlnb.widgets.transport.commands import Command
from drlnb.widgets.transport.story import FOLDS

__all__ = ["Swapping"]


class _Steps(Source):
    """What a panel plans: the steps of a task, as the journal knows them, or with what the fields say."""

    KEYS: ClassVar[Mapping[str, str]] = {
        "budget_mib": "swapping.memory_budget_bytes",
        "planner": "swapping.planner",
    }
    FIRST, JOBS = "peak", ("front", "compare", "sweep", "learn")

    @property
    def of(self) -> SwapFold:
        """What the journal says of the task's steps."""
        return measured.newest(self.panel.reader.fold, self.panel.steering.task)[1]

    @property
    def defaults(self) -> Plain:
        """What is in force."""
        of = self.of
        mib = 11264.0 if math.isnan(of.memory_budget_bytes) else of.memory_budget_bytes / 2**20
        return {"budget_mib": mib, "planner": of.planner, "pins": of.pins, "show": "time"}

    @property
    def wish(self) -> dict[str, Any]:
        """What the fields say and is not in force: key of the setting -> value."""
        of, given = self.of, self.panel.settings
        wanted: dict[str, Any] = {}
        if "budget_mib" in given:
            wanted["memory_budget_bytes"] = round(given["budget_mib"] * 2**20)
        wanted |= {"planner": given["planner"]} if "planner" in given else {}
        now = {"memory_budget_bytes": of.memory_budget_bytes, "planner": of.planner}
        return {f"swapping.{key}": value for key, value in wanted.items() if value != now.get(key, ...)}

    @property
    def key(self) -> object:
        """What plans depend on, as something to compare."""
        of, wish = self.of, self.wish
        running = "" if wish else of.running
        return (
            self.panel.steering.task,
            id(of.profile),
            running,
            repr((of.memory_budget_bytes, of.planner, of.pins, wish)),
        )

    def case(self) -> Case:
        """Return the step that is planned, with what the fields say; ConfigError before it was profiled."""
        with FOLDS:
            case, wish = whatif.task_case(str(self.panel.steering.task), self.of), self.wish
        for key, value in wish.items():
            case = case.having(key, value)
        return case

    def explained(self) -> Explained:
        """Return the plan in force, or a planner's where the fields say something else, and what it costs."""
        case = self.case()
        return whatif.explain(case, case.plan() if self.wish else whatif.in_force(case, self.of))

    def draw(self, name: str) -> View | None:
        """Return what was measured of the steps, and what was learned by trials; until then the simulator says that."""
        of, origin = self.of, self.panel.reader.fold.origin
        if name in {"learnt", "values"} and of.learnt.trials:
            said = f"{self.panel.steering.task}, {of.planner}"
            if name == "values":
                return compared.values(of.learnt, said, origin)
            return compared.learnt(of.learnt, said, origin=origin)
        return (
            measured.steps(self.panel.reader.fold, name, self.panel.steering.task) if name in {"peak", "time"} else None
        )

    @property
    def measured(self) -> tuple[float, str]:  # type: ignore[override]
        """Greatest bytes in use of the newest steps, and where that is from."""
        return measured.typical(self.of)[0], self.panel.reader.fold.origin


class Swapping(Swaps):
    """Steps as measured, the plan in force, and what others would do.

    Its settings: ``budget_mib`` and ``planner``, which can be looked at before they are applied, and ``show``.
    """

    CHECKS: ClassVar[settings.Checks] = {key: Source.CHECKS[key] for key in ("budget_mib", "planner", "show")}
    SOURCE = _Steps
    source: _Steps

    def controls(self) -> list[ipywidgets.Widget]:
        """Make Apply and Reset beside the other buttons."""
        self.panel.steering.task = next(iter(self.run.specs), None) if self.run is not None else None
        known = {
            "apply": ("change swapping", lambda args: self.source.applied.apply(args)),
            "reset": ("forget the table", lambda args: change(self.panel, "swapping.planner", self.source.of.planner)),
        }
        for name, (label, run) in known.items():
            self.panel.commands.add(name, Command(label=label, run=run, check=self.can_change))
        return super().controls()

    def own(self) -> list[ipywidgets.Widget]:
        """Make the choice of the task."""
        names = list(self.run.specs) if self.run is not None else []
        return [self.panel.fields.add("task", ipywidgets.Dropdown, "task", "190px", options=names)]

    def folded(self) -> None:
        """Drop what was applied as soon as something else is in force than before."""
        self.source.applied.settle()
        self.source.knobs.follow()

    def facts(self) -> Plain:
        """Return the buttons, with Apply, and the plan in words below what was measured."""
        facts, of, wish = super().facts(), self.plans.newest(), self.source.wish
        plan = f"{'preview' if wish else 'plan'}: {of.sentence if isinstance(of, Explained) else of}"
        apply = button("apply", "Apply", reason=self.off or ("" if wish else "nothing was moved"))
        origin = f"{self.fold.origin} and {computed.COMPUTED}"
        idle = "" if whatif.learns(self.source.of.planner) else f"{self.source.of.planner} learns nothing"
        reset = button("reset", "Reset", reason=self.off or idle)
        return {"buttons": [apply, *facts["buttons"], reset], "notes": [plan, *facts["notes"]], "origin": origin}
