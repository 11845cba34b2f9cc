"""List the metrics with their units, and write them to a file that survives a kill."""

import csv
import io
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["GLOSSARY", "Meaning", "MetricsCsv", "evaluation_name"]


class Meaning(NamedTuple):
    """One line of the glossary."""

    unit: str
    text: str


#: Metric -> unit and meaning; ``rollout/``, ``time/``, ``train/`` and ``eval/`` use Stable-Baselines3's names.
GLOSSARY: dict[str, Meaning] = {
    "rollout/ep_rew_mean": Meaning("reward", "mean raw return of the last 100 episodes of all collectors"),
    "rollout/ep_len_mean": Meaning("steps", "mean length of the last 100 episodes of all collectors"),
    "time/fps": Meaning("steps/s", "environment steps per second since training began"),
    "time/time_elapsed": Meaning("s", "seconds since training began"),
    "time/total_timesteps": Meaning("steps", "environment steps so far, over all environments"),
    "time/iterations": Meaning("rounds", "rounds so far"),
    "train/approx_kl": Meaning("nats", "KL of old to new policy, mean over the last epoch: mean((r - 1) - log r)"),
    "train/clip_fraction": Meaning("1", "fraction of samples whose ratio left the clip range, over all steps"),
    "train/clip_range": Meaning("1", "largest |ratio - 1| that still earns, this round"),
    "train/clip_range_vf": Meaning("value", "largest change of a value estimate, this round"),
    "train/collapsed": Meaning("1", "1 where GPF's policy lost its entropy in the first tenth of the budget, else 0"),
    "train/entropy": Meaning("nats", "mean entropy of the policy"),
    "train/entropy_loss": Meaning("nats", "minus the entropy"),
    "train/explained_variance": Meaning("1", "1 - var(return - value) / var(return); nan for constant returns"),
    "train/grad_norm": Meaning("1", "norm of the gradient before clipping, mean over the round's steps"),
    "train/learning_rate": Meaning("1", "step size of Adam, this round"),
    "train/loss": Meaning("1", "loss of the round's last minibatch; DQN: mean over the round's steps"),
    "train/n_updates": Meaning("epochs", "epochs so far, as Stable-Baselines3 counts them; DQN: gradient steps"),
    "train/policy_gradient_loss": Meaning("1", "clipped surrogate, mean over the round's steps"),
    "train/q_gap": Meaning("scaled reward", "best less second-best action value, mean over the samples (GPF)"),
    "train/q_loss": Meaning("value^2", "mean squared error of the taken action's value, mean over the round's steps"),
    "train/replay_ratio": Meaning("1", "gradient steps per transition made, this round (off-policy)"),
    "train/std": Meaning("action", "mean standard deviation of a Gaussian policy"),
    "train/tau": Meaning("scaled reward", "temperature of the first member's first softmax, this round (GPF)"),
    "train/value_loss": Meaning("value^2", "mean squared error of the value, mean over the round's steps"),
    "rollout/exploration_rate": Meaning("1", "probability of a random action after this round (DQN)"),
    "replay/size": Meaning("transitions", "transitions in the replay ring"),
    "replay/age_mean": Meaning("steps", "vector steps since the round's samples were made, mean"),
    "round/time_s": Meaning("s", "duration of the round"),
    "round/collect_s": Meaning("s", "longest collecting of the round (one process: the sum)"),
    "round/update_s": Meaning("s", "staging and gradient steps"),
    "round/wait_lease_s": Meaning("s", "waiting for slots"),
    "round/push_s": Meaning("s", "from the commit until the slowest host holds the parameters"),
    "round/control_s": Meaning("s", "all of the round that is not collecting, waiting for slots or updating"),
    "lease/wait_s": Meaning("s", "from request to grant, mean over the leases of the round"),
    "lease/held_s": Meaning("s", "from grant to return on the master's clock, sum over the leases of the round"),
    "lease/resident_hit": Meaning("1", "share of the round's leases whose slots held its parameters already"),
    "lease/moved_bytes": Meaning("bytes", "state and kept gradients that had to be brought to slots in the round"),
    "warmup/lead_s": Meaning("s", "planned start before the expected parameters, mean over the starts planned so"),
    "warmup/hit": Meaning("1", "share of the starts for the round that were ready when its parameters came"),
    "warmup/early_s": Meaning("s", "ready before the parameters, mean over the starts for the round"),
    "warmup/late_s": Meaning("s", "ready after the parameters, mean over the starts for the round"),
    "eval/mean_reward": Meaning("reward", "mean raw return of deterministic evaluation episodes"),
    "eval/mean_reward_stochastic": Meaning("reward", "mean raw return of sampled evaluation episodes"),
    "resume/episodes_lost": Meaning("episodes", "episodes that a resume could not restore; in its first round only"),
}


def evaluation_name(*, deterministic: bool) -> str:
    """Return the name of an evaluation's mean return."""
    return "eval/mean_reward" if deterministic else "eval/mean_reward_stochastic"


class MetricsCsv:
    """A CSV file with one row per round, whose header grows when a new metric appears.

    A row is written whole and flushed at once; a row torn by a kill is dropped when the file is opened again.  A new
    column rewrites the file beside the old one and swaps the names, so a reader never sees half a file.

    Parameters
    ----------
    path
        Where the file is, or will be; its folder must exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._columns: list[str] = []
        if self.path.exists():
            self._mend()
        self._file = self.path.open("a", newline="", encoding="utf-8")

    def _mend(self) -> None:
        text = self.path.read_bytes().decode("utf-8", errors="replace")
        whole = text[: text.rfind("\n") + 1]
        if len(whole) != len(text):
            self._replace(whole)
        self._columns = next(csv.reader(io.StringIO(whole)), [])

    def _replace(self, text: str) -> None:
        beside = self.path.with_name(self.path.name + ".part")
        with beside.open("w", newline="", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)

    def _widen(self, new: list[str]) -> None:
        self._file.close()
        with self.path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))[1:]
        self._columns += new
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self._columns)
        writer.writerows([*row, *[""] * (len(self._columns) - len(row))] for row in rows)
        self._replace(out.getvalue())
        self._file = self.path.open("a", newline="", encoding="utf-8")

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row.

        Parameters
        ----------
        row
            Metric -> value; a metric that is missing leaves its cell empty.
        """
        new = [name for name in row if name not in self._columns]
        if new:
            self._widen(new)
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow([_text(row.get(name)) for name in self._columns])
        self._file.write(out.getvalue())
        self._file.flush()

    def close(self) -> None:
        """Close the file; it may be opened again."""
        self._file.close()


def _text(value: object) -> object:
    return "nan" if isinstance(value, float) and math.isnan(value) else value
