"""Run ``drlnb simulate swapping``: planners side by side on a network, at multiples of the batch that just fits."""

import argparse
from collections.abc import Iterator
from typing import Any

from drlnb.planning.registry import PlannerFailed
from drlnb.planning.swapping import SWAPPING, SwapPlan, SwapView
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.trace import GIB, analytic
from drlnb.records.errors import ConfigError, nearest
from drlnb.records.units import read_bytes
from drlnb.sim.report import figure_row, print_report, table_lines
from drlnb.sim.swapping.nets import net_names, net_trace, plain_batch

__all__ = ["main"]

#: What ``all`` stands for: each planner that needs no limit on the number of rows.
_COMPARED = ("none", "all", "vdnn_conv", "vdnn_all", "capuchin", "greedy", "hybrid", "auto")


def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate swapping``, print what came out and return 0; ConfigError if an option is wrong.

    The arguments are ``net``, ``multiple`` (of the largest batch that fits without a plan), ``planner`` (names,
    or ``compared`` for one of each kind), ``preset``, ``swap_budget``, ``seed`` and ``json``.
    """
    name, preset = arguments.net, arguments.preset
    if name not in net_names():
        raise ConfigError(f"--net must be one of {', '.join(net_names())}, got {name!r}{nearest(name, net_names())}")
    memory_budget_bytes = read_bytes(arguments.swap_budget)
    if not all(0.01 <= multiple <= 100 for multiple in arguments.multiple):
        raise ConfigError(f"--multiple must be from 0.01 to 100, got {min(arguments.multiple):g}")
    trace = net_trace(name)
    plain = plain_batch(trace, preset, memory_budget_bytes)
    if not plain:
        raise ConfigError(f"--swap-budget must hold {name} and one sample, got {arguments.swap_budget}")
    profile = analytic(trace, preset, plain)
    base = plain / predict(profile, SwapPlan.keeping(profile), plain, memory_budget_bytes).step_s
    rows = list(_rows(arguments, plain, base, memory_budget_bytes))
    saved = sum(row.bytes_per_sample for row in trace.rows) / 2**20
    title = (
        f"{name} on {preset} (roofline), {memory_budget_bytes / GIB:.4g} GiB: {saved:.2f} MiB saved per sample; "
        f"without a plan {plain} samples fit, {base:.4g} samples/s (simulated)"
    )
    lines = [title, *table_lines([_cells(row) for row in rows])]
    print_report(
        lines,
        "simulate-swapping",
        rows,
        json_to=arguments.json,
        net=name,
        preset=preset,
        memory_budget_bytes=memory_budget_bytes,
        plain_batch=plain,
        plain_samples_per_s=base,
    )
    return 0


def _rows(arguments: argparse.Namespace, plain: int, base: float, memory_budget_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield what came out, per multiple and planner."""
    names = [each for name in arguments.planner for each in (_COMPARED if name == "compared" else (name,))]
    for multiple in arguments.multiple:
        n_samples = max(1, int(plain * multiple))
        profile = analytic(net_trace(arguments.net), arguments.preset, n_samples)
        view = SwapView(
            profile=profile, n_samples=n_samples, memory_budget_bytes=memory_budget_bytes, seed=arguments.seed
        )
        for name in dict.fromkeys(names):
            try:
                plan = SWAPPING.ask(SWAPPING.build(name), view)
            except (ValueError, PlannerFailed) as error:
                raise ConfigError(f"--planner: {error}") from None
            said = predict(profile, plan, n_samples, memory_budget_bytes)
            yield figure_row(
                f"{name} x{multiple:g}",
                "samples per second, relative to the largest batch without a plan",
                n_samples / said.step_s,
                "none x1",
                base,
                n_samples=n_samples,
                stall_s=said.stall_s,
                **{key: getattr(said, key) for key in ("fits", "step_s", "hidden_frac", "peak_bytes")},
                n_of={action: plan.actions.count(action) for action in dict.fromkeys(plan.actions)},
            )


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """Return a row as it is printed."""
    return {
        "planner": row["id"],
        "samples": str(row["n_samples"]),
        "fits": "yes" if row["fits"] else "no",
        "v plain": f"{row['ratio']:.2f}",
        "step": f"{row['step_s'] * 1e3:.0f} ms",
        "stalls": f"{row['stall_s'] * 1e3:.0f} ms",
        "peak": f"{row['peak_bytes'] / GIB:.2f} G",
        "": " ".join(f"{action} {n}" for action, n in row["n_of"].items()),
    }
