"""Write a plan as a table: what is done with each row, and why."""

from drlnb.planning.swapping.cost import Walker
from drlnb.planning.swapping.profile import BLOCK, DERIVE, KEEP, SQUEEZE, SavedRow, SwapPlan, SwapProfile
from drlnb.records.units import said_s

__all__ = ["plan_rows", "plan_table"]


def plan_rows(profile: SwapProfile, plan: SwapPlan, n_samples: int) -> tuple[dict[str, str | float], ...]:
    """Return each row of a plan: its layer, type, MiB, the seconds in which nobody needs it, action and reason."""
    numbers = Walker(profile, n_samples)
    rows: list[dict[str, str | float]] = []
    for i, row in enumerate(profile.rows):
        last = numbers.last[i]
        gap_s = sum(numbers.forward_s[last + 1 :]) + sum(numbers.backward_s[last + 1 :])
        action = plan.action_of[row.key]
        rows.append({
            "layer": row.name,
            "type": row.layer_type,
            "MiB": numbers.size[i] / 2**20,
            "gap_s": gap_s,
            "action": action,
            "why": _reason(numbers, plan, row, i, gap_s),
        })
    return tuple(rows)


def _reason(numbers: Walker, plan: SwapPlan, row: SavedRow, i: int, gap_s: float) -> str:
    action = plan.action_of[row.key]
    if action == KEEP:
        return "it stays"
    if action == SQUEEZE:
        return f"{row.squeeze_kind}: {row.squeeze_left_frac:.0%} of its bytes stay"
    if action == DERIVE and row.derive_from is not None:
        path, ordinal = row.derive_from
        return f"made again from {path}#{ordinal} in {said_s(numbers.derive_s[i])}"
    if action == BLOCK:
        path = next(path for path in plan.blocks if i in numbers.block_rows[path])
        return f"{path} is made again in {said_s(numbers.again_s(path))}"
    return f"gap {said_s(gap_s)}, copies {said_s(numbers.out_s[i] + numbers.in_s[i])}"


def plan_table(profile: SwapProfile, plan: SwapPlan, n_samples: int) -> str:
    """Return a plan as text, a line for each row below one of titles.

    Parameters
    ----------
    profile
        What the step saves.
    plan
        A plan for it.
    n_samples
        Samples of the step.
    """
    lines = [f"{'layer':<32}{'type':<24}{'MiB':>10}{'gap':>10}  {'action':<8} why"]
    for row in plan_rows(profile, plan, n_samples):
        gap = said_s(float(row["gap_s"]))
        lines.append(
            f"{row['layer']:<32}{row['type']:<24}{row['MiB']:>10.2f}{gap:>10}  {row['action']:<8} {row['why']}"
        )
    return "\n".join(lines)
