"""Eight tasks train for an hour, in four parts: memory and descriptors of every process stay where they are."""

import time
from collections import defaultdict

import numpy as np
import psutil
import pytest

import drlnb

#: Length of one part, and what is left out at its beginning while buffers fill, in seconds; time between two looks.
PART_S, BEGIN_S, LOOK_S = 900.0, 240.0, 5.0
#: Most that a kind of process may grow by in an hour, as a share of what all of them take; and descriptors, in number.
MOST_FRAC, MOST_DESCRIPTORS = 0.05, 8.0
TASKS = (("CartPole-v1", "ppo"), ("CartPole-v1", "gpf"), ("CartPole-v1", "dqn"), ("Acrobot-v1", "ppo"))


def looked(fleet):
    """Return resident bytes, open descriptors, and bytes that no other process shares, of each kind of process.

    Growth is that of resident bytes.  Collectors share pages with the zygote that they were forked from, which become
    their own as references to what lies there are counted: of 8 collectors .6 MB in 12 minutes, resident .1 MB.
    """
    found = defaultdict(lambda: np.zeros(3))
    root = psutil.Process(fleet.pool.handle.pid)
    for process in (psutil.Process(), root, *root.children(recursive=True)):
        try:
            kind = "client" if process.pid == psutil.Process().pid else " ".join(process.cmdline()).split()[1]
            memory = process.memory_full_info()
            found[kind] += (memory.rss, process.num_fds(), memory.uss)
        except (psutil.Error, IndexError):
            continue  # it has just ended
    return found


def slope(t, values):
    """Return the growth per hour and twice its standard error; neighbours count as one where they go together."""
    x, y = np.array(t) / 3600.0, np.array(values, dtype=np.float64)
    x = x - x.mean()
    by_hour = float(x @ y / (x @ x))
    rest = y - y.mean() - by_hour * x
    together = max(0.0, float(np.corrcoef(rest[:-1], rest[1:])[0, 1])) if rest.std() > 0 else 0.0
    n = max(3.0, len(y) * (1 - together) / (1 + together))
    return by_hour, 2 * float(np.sqrt(rest @ rest / len(y) / (n - 2) / (x @ x) * len(x)))


def test_a_slope_is_found_where_there_is_one():
    """One part in a hundred of growth per minute is; noise alone is none."""
    draw = np.random.default_rng(0)
    t = np.arange(0.0, 600.0, 5.0)
    noise = draw.normal(0.0, 1.0, len(t))
    grown, error = slope(t, 100.0 + t / 60.0 + noise)
    assert abs(grown - 60.0) < error < 6.0
    still, error = slope(t, 100.0 + noise)
    assert abs(still) < 1.5 * error


@pytest.mark.slow
@pytest.mark.timeout(PART_S + 300)
@pytest.mark.parametrize("part", range(4))
def test_memory_and_descriptors_are_flat(part, tmp_path):
    """The slope of each kind of process, with its interval, is within its bound."""
    series, t = defaultdict(list), []
    with drlnb.Fleet(slots=2) as fleet:
        tasks = [
            drlnb.Task(env, algo=algo, name=f"t{i}", seed=10 * part + i, total_timesteps=10**9)
            for i, (env, algo) in enumerate(TASKS * 2)
        ]
        run = fleet.train(tasks, out=tmp_path / "r")
        began = time.monotonic()
        while (now := time.monotonic() - began) < PART_S:
            assert run.status == "running"
            if now >= BEGIN_S:
                t.append(now)
                for kind, figures in looked(fleet).items():
                    series[kind].append(figures)
            time.sleep(LOOK_S)
    whole = {kind: np.array(rows) for kind, rows in series.items() if len(rows) == len(t)}
    level = sum(rows[:, 2].mean() for rows in whole.values())
    assert {"client", "scheduler", "worker", "executor", "collector"} - {"scheduler"} <= whole.keys()
    grown = {}
    for kind, rows in sorted(whole.items()):
        (mb, mb_error), (n, n_error) = slope(t, rows[:, 0] / 1e6), slope(t, rows[:, 1])
        print(f"{kind}: {rows[:, 0].mean() / 1e6:.0f} MB {mb:+.1f} +- {mb_error:.1f} an hour; "
              f"{rows[:, 1].mean():.0f} descriptors {n:+.2f} +- {n_error:.2f}")  # fmt: skip
        grown[kind] = ((mb - mb_error) * 1e6 / level <= MOST_FRAC, n - n_error <= MOST_DESCRIPTORS)
    assert all(all(flat) for flat in grown.values()), grown
