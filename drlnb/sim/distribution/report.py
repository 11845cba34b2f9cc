"""Run ``drlnb simulate distribution``: plans side by side, by the closed form and message by message."""

import argparse
from collections.abc import Iterable
from typing import Any

from drlnb.planning.distribution import DISTRIBUTION, STRATEGIES, Cost, Link, bound_s
from drlnb.records.errors import ConfigError
from drlnb.sim.distribution.publish import Published, host_names, simulate_publish
from drlnb.sim.report import figure_row, print_report, table_lines

__all__ = ["main"]

#: Numbers of relays that a sweep tries, as far as there are hosts.
_SWEEP = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)
_GBIT = 0.117e9


def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate distribution``, print what came out and return 0; ConfigError if an option is wrong.

    The arguments are ``hosts``, ``model_mb``, ``link_gbit``, ``latency_us``,
    ``overhead_us``, ``plan`` (names of planners, or ``all``), ``sweep`` (a strategy, or None), ``fail`` (HOST@SECONDS,
    each) and ``json``.
    """
    if not 1e-6 <= arguments.model_mb <= 1e6:
        raise ConfigError(f"--model-mb must be from one byte to a terabyte, got {arguments.model_mb:g}")
    n, model_bytes = arguments.hosts, round(arguments.model_mb * 1e6)
    link = _link(arguments)
    fails = dict(_failure(text, n) for text in arguments.fail)
    planners = list(_planners(arguments.plan, arguments.sweep, n))
    bound = bound_s(Cost.of(n, model_bytes, link))
    results = [(name, simulate_publish(name, n, model_bytes, link, fails=fails)) for name in planners]
    rows = [_row(name, result, bound, model_bytes) for name, result in results]
    title = (
        f"{n} hosts, {arguments.model_mb:g} MB, {arguments.link_gbit:g} Gbit/s, latency {arguments.latency_us:g} us, "
        f"{arguments.overhead_us:g} us per message; one version through one card takes "
        f"{model_bytes / link.learner_bytes_per_s:.4g} s, no plan is faster than {bound:.4g} s (simulated)"
    )
    print_report(
        [title, *table_lines([_cells(row) for row in rows])],
        "simulate-distribution",
        rows,
        json_to=arguments.json,
        hosts=n,
        model_bytes=model_bytes,
        bound_s=bound,
    )
    return 0


def _link(arguments: argparse.Namespace) -> Link:
    """Return the network; ConfigError names the option."""
    given = {
        "--link-gbit": ("learner_bytes_per_s", arguments.link_gbit * _GBIT),
        "--latency-us": ("latency_s", arguments.latency_us * 1e-6),
        "--overhead-us": ("overhead_s", arguments.overhead_us * 1e-6),
    }
    if problems := [
        f"{option}: {problem}" for option, (key, value) in given.items() for problem in Link.problems({key: value})
    ]:
        raise ConfigError(problems)
    values = dict(given.values())
    return Link.of(values["learner_bytes_per_s"], latency_s=values["latency_s"], overhead_s=values["overhead_s"])


def _planners(names: Iterable[str], sweep: str | None, n: int) -> Iterable[str]:
    """Yield the planners to compare, each once."""
    chosen = [each for name in names for each in ((*STRATEGIES, "auto") if name == "all" else (name,))]
    if sweep is not None:
        letter = next(iter(STRATEGIES[sweep].params))
        chosen += [f"{sweep}:{letter}={m}" for m in _SWEEP if m <= n and (m > 1 or sweep != "multitree")]
    for name in dict.fromkeys(chosen):
        try:
            DISTRIBUTION.build(name)
        except ValueError as error:
            raise ConfigError(f"--plan: {error}") from None
        yield name


def _failure(text: str, n: int) -> tuple[str, float]:
    """Read which host is gone after how many seconds."""
    host, _, seconds = text.partition("@")
    try:
        number, after_s = int(host), float(seconds)
    except ValueError:
        number, after_s = -1, -1.0
    if not 0 <= number < n or not 0 <= after_s < 1e9:
        raise ConfigError(f"--fail must be HOST@SECONDS with a host from 0 to {n - 1}, got {text!r}")
    return host_names(n)[number], after_s


def _row(name: str, result: Published, bound: float, model_bytes: int) -> dict[str, Any]:
    """Return what came out for one planner."""
    egress = result.plan.egress_bytes()
    return figure_row(
        name,
        "seconds until every host holds the version",
        result.held_s,
        "bound",
        bound,
        predicted_s=result.plan.predicted_s,
        versions_per_s=1.0 / result.held_s if result.held_s else None,
        n_routes=len(result.plan.routes),
        n_messages=result.plan.n_messages(),
        learner_egress_versions=float(egress[-1]) / model_bytes,
        most_egress_versions=float(egress[:-1].max(initial=0)) / model_bytes,
        failed=list(result.failed),
    )


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """Return a row as it is printed."""
    return {
        "plan": row["id"],
        "s": f"{row['value']:.4g}",
        "formula": f"{row['predicted_s']:.4g}",
        "versions/s": f"{row['versions_per_s']:.4g}",
        "v bound": f"{row['ratio']:.2f}",
        "messages": str(row["n_messages"]),
        "learner": f"{row['learner_egress_versions']:.2f}",
        "a host": f"{row['most_egress_versions']:.2f}",
        "dropped": " ".join(row["failed"]) or "-",
    }
