import errno
import json
import signal

import pytest

from drlnb.cli.session import Session
from tests.cli.test_progress import status


class FakeFleet:
    def __init__(self):
        self.ends = []

    def close(self):
        self.ends.append("closed")

    def kill(self):
        if not self.ends:
            self.ends.append("killed")


class FakeTraining:
    """A training that ends after some looks, or once it was asked to stop."""

    out = "runs/x"
    notices = ()

    def __init__(self, state="done", n_looks=0, on_look=None):
        self.state, self.n_looks, self.on_look = state, n_looks, on_look
        self.stopped = False
        self.failure = "it broke" if state == "failed" else ""
        self.watch = self
        self.on_summary = lambda: None

    def settle(self, timeout_s):
        self.n_looks -= 1
        if self.n_looks >= 0 and self.on_look:
            self.on_look()
        return self.n_looks < 0

    def stop(self):
        self.stopped, self.state, self.n_looks = True, "stopped", 1

    @property
    def tasks(self):
        return {"a": status("a", state=self.state, doing=self.state, failure=self.failure)}

    def summary(self):
        self.on_summary()
        row = {"name": "a", "timesteps": 1, "ep_rew_mean": 1.0, "eval_mean_reward": None, "seconds": 1.0}
        leases = {"grants": 0, "utilisation": None, "held": None, "bound": None, "inflation": None}
        leases |= {"expected_utilisation": None, "expected_inflation": None}
        tasks = [row | {"steps_per_s": 1.0, "restarts": 0}]
        return {"run": "r1", "tasks": tasks, "leases": leases | {"hold_planner": None}}


@pytest.fixture
def fleet():
    return FakeFleet()


def follow(training, fleet, *, as_json=False):
    with Session(as_json=as_json, debug=True) as session:
        session.fleet = training.fleet = fleet
        return session.follow(training)


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("failed", 1), ("stopped", 130)])
def test_the_exit_code_tells_how_it_ended(fleet, capsys, state, code):
    """The fleet is closed before the summary, so that the journal is whole; how to go on is told if there is more."""
    assert follow(FakeTraining(state), fleet) == code
    assert fleet.ends == ["closed"]
    out, err = capsys.readouterr()
    assert "run directory: runs/x" in out
    assert ("drlnb: task a failed: it broke" in err) == (state == "failed")
    assert ("go on with: drlnb resume runs/x" in err) == (state == "stopped")


def test_json_is_the_last_line_and_the_only_one_on_standard_output(fleet, capsys):
    """All that is for people goes to standard error."""
    follow(FakeTraining(), fleet, as_json=True)
    out, err = capsys.readouterr()
    assert json.loads(out)["run"] == "r1"
    assert out.count("\n") == 1
    assert "run directory: runs/x" in err


def test_ctrl_c_once_stops_with_a_checkpoint(fleet, capsys):
    """The training is asked to stop and waited for; exit code 130."""
    training = FakeTraining("running", 3, lambda: training.stopped or signal.raise_signal(signal.SIGINT))
    assert follow(training, fleet) == 130
    assert training.stopped
    assert fleet.ends == ["closed"]
    assert "stopping: each task writes a checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_count_as_ctrl_c(fleet, capsys, number):
    """A batch system that ends a job gets its checkpoint, too, and so does a terminal that is closed."""
    before = signal.signal(number, signal.SIG_DFL)  # ignored where the tests run under nohup
    try:
        training = FakeTraining("running", 3, lambda: training.stopped or signal.raise_signal(number))
        assert follow(training, fleet) == 130
    finally:
        signal.signal(number, before)
    assert training.stopped
    assert "go on with: drlnb resume runs/x" in capsys.readouterr().err


def test_sighup_that_is_ignored_stays_so(fleet):
    """Under nohup a training outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        training = FakeTraining("done", 2, lambda: signal.raise_signal(signal.SIGHUP))
        assert follow(training, fleet) == 0
        assert not training.stopped
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("error", [OSError(errno.EPIPE, "Broken pipe"), OSError(errno.EIO, "Input/output error")])
def test_output_that_nobody_reads_stops_with_a_checkpoint(fleet, error):
    """After `| head -1`, or in a terminal that is gone; nothing is killed, and the error is main's to tell."""

    def gone():
        if not training.stopped:
            raise error

    training = FakeTraining("running", 3, gone)
    with pytest.raises(OSError, match=error.strerror):
        follow(training, fleet)
    assert training.stopped
    assert fleet.ends == ["closed"]


def test_ctrl_c_twice_kills(fleet, capsys):
    """The second one does not wait for the round."""

    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    assert follow(FakeTraining("running", 3, twice), fleet) == 130
    assert fleet.ends == ["killed"]
    assert "killing: what was done since the last checkpoint is lost" in capsys.readouterr().out


def test_ctrl_c_while_it_starts_takes_all_down(fleet):
    """Nothing is left of a fleet that was just made, and the signals' handlers are those from before."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Session(as_json=False, debug=True) as session:  # noqa: PT012
        session.fleet = fleet
        signal.raise_signal(signal.SIGINT)
    assert fleet.ends == ["killed"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_skips_the_summary_alone(fleet, capsys, number):
    """The run is over: where it lies is told all the same, and the exit code is that of the tasks."""
    training = FakeTraining()
    training.on_summary = lambda: signal.raise_signal(number)
    assert follow(training, fleet) == 0
    assert capsys.readouterr().out.endswith("the summary was skipped\nrun directory: runs/x\n")
