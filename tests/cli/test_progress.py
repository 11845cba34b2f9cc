import io

from drlnb.cli import progress
from drlnb.cli.progress import Live, leases_line, settings_lines, status_line, summary_lines
from drlnb.records.spec import RlWork
from drlnb.views.folds.status import TaskStatus


def status(name="a", **changes):
    fields = {
        "env": "CartPole-v1", "seed": 0, "state": "running", "doing": "collecting", "n_timesteps": 42_240,
        "total_timesteps": 100_000, "ep_rew_mean": 187.34, "eval_mean_reward": None, "eta_s": 72.0, "n_restarts": 0,
        "elapsed_s": 9.0, "failure": "",
    }  # fmt: skip
    return TaskStatus(name=name, **fields | changes)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_tells_steps_return_time_left_and_what_it_does():
    """Everything that a person asks while waiting."""
    line = status_line(status(), 3)
    assert line == "a     42%      42,240/100,000  return    187.3  ETA  1 min 12 s  collecting"


def test_a_line_of_an_ended_task_has_no_time_left():
    """Restarts are told where there were any; an unknown return is a dash."""
    line = status_line(status(state="done", doing="done", ep_rew_mean=None, n_restarts=2), 1)
    assert line == "a   42%      42,240/100,000  return        -  done, 2 restarts"
    line = status_line(status(doing="collecting", n_restarts=1, last_loss="killed by signal 9"))
    assert line.endswith("collecting, 1 restarts (last: killed by signal 9)")


def test_a_terminal_is_rewritten_in_place(monkeypatch):
    """The second drawing begins as many lines above as the first has drawn; a notice takes the lines away."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    live = Live(stream)
    tasks = {"a": status("a"), "b": status("b")}
    live.show(tasks)
    assert stream.getvalue().count("\n") == 2
    live.show(tasks)
    assert stream.getvalue().count("\x1b[2A") == 1
    live.write("notice")
    live.show(tasks)
    assert stream.getvalue().count("\x1b[2A") == 2
    assert "\x1b[2A\x1b[Jnotice\n\r\x1b[2Ka " in stream.getvalue()


def test_a_small_terminal_shows_the_first_tasks_and_counts_the_rest(monkeypatch):
    """Lines that scrolled away could not be rewritten."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda **_: (80, 6))
    stream = Terminal()
    Live(stream).show({f"t{i}": status(f"t{i}") for i in range(9)})
    lines = stream.getvalue().rstrip().split("\n")
    assert len(lines) == 4
    assert lines[-1].endswith("... and 6 more")


def test_a_file_gets_plain_lines_now_and_then():
    """Twice in a row says nothing new; an end is said at once, and once."""
    stream = io.StringIO()
    live = Live(stream)
    live.show({"a": status()})
    live.show({"a": status()})
    assert stream.getvalue().count("\n") == 1
    for _ in range(2):
        live.show({"a": status(state="done", doing="done")})
    assert stream.getvalue().count("\n") == 2
    assert "\x1b" not in stream.getvalue()


def test_settings_say_their_origin_and_what_differs():
    """Seeds of the same task stand together."""
    specs = [
        RlWork(name=f"a-s{seed}", env="a", seed=seed, total_timesteps=5000, n_envs=2, origin="tuned settings",
                 hyperparameters={"gamma": 0.9, "n_steps": 32})
        for seed in (0, 7)
    ]  # fmt: skip
    assert settings_lines(specs, {"gamma": 0.99, "n_steps": 32}) == [
        "a-s0, a-s7: tuned settings",
        "    5,000 steps, 2 environments, 1 collectors, seed 0, 7",
        "    differs from Stable-Baselines3's defaults: gamma=0.9",
    ]


def test_several_learners_are_said():
    """Beside the collectors; one learner is what everybody has."""
    gang = RlWork(name="a", env="a", algo="gpf", total_timesteps=5000, n_envs=2, n_collectors=2, n_learners=2)
    assert settings_lines([gang], {})[1] == "    5,000 steps, 2 environments, 2 collectors, 2 learners, seed 0"


def test_the_table_shows_dashes_for_what_is_not_known():
    """One head, one line per task."""
    row = {"name": "a", "timesteps": 1000, "ep_rew_mean": 20.04, "eval_mean_reward": None, "seconds": 61.0}
    summary = {"tasks": [row | {"steps_per_s": None, "restarts": 1}], "leases": {"grants": None}}
    _, *lines = summary_lines(summary, {"a": status(state="stopped")})
    assert lines[0].split() == ["task", "state", "steps", "return", "eval", "return", "time", "steps/s", "restarts"]
    assert lines[1].split() == ["a", "stopped", "1,000", "20.0", "-", "1", "min", "1", "s", "-", "1"]


def test_the_leases_line_shows_shares():
    """Percentages for shares, a factor for inflation."""
    leases = {
        "grants": 3, "utilisation": 0.5, "held": 0.75, "bound": 1.0, "inflation": 1.25, "expected_utilisation": 0.6,
        "expected_inflation": 1.5, "hold_planner": "last",
    }  # fmt: skip
    assert leases_line(leases) == (
        "slots: 3 leases (hold planner last), computing 50% of the time (expected 60%, bound 100%), held 75%, "
        "rounds 1.25 x as long as without waiting for a slot (expected 1.50 x)"
    )
    unknown = leases | {"expected_utilisation": None, "expected_inflation": None}
    assert "(expected -, bound 100%)" in leases_line(unknown)
    assert leases_line(unknown).endswith("(expected - x)")


def test_supervised_work_has_a_loss_in_place_of_returns():
    """Neither its line nor its summary speaks of what it has not."""
    fit = status("fit", env="", doing="computing", ep_rew_mean=None, loss=0.123456)
    assert status_line(fit) == "fit   42%      42,240/100,000  loss     0.1235  ETA  1 min 12 s  computing"
    leases = dict.fromkeys(("grants", "hold_planner"))
    row = {"name": "fit", "timesteps": 42_240, "seconds": 9.0, "steps_per_s": 100.0, "restarts": 0, "loss": 0.123456}
    head = summary_lines({"tasks": [row], "leases": leases}, {"fit": fit})[1]
    assert head.split() == ["task", "state", "steps", "loss", "time", "steps/s", "restarts"]
