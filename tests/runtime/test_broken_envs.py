"""Environments that hang or return what is no number: their tasks fail by name, the others go on."""

import pytest

from drlnb.records.columns import warmup
from drlnb.records.errors import EnvError
from tests.runtime.laws import check_laws

pytestmark = pytest.mark.cluster

#: What each of them does once a file is there (probing comes before that).
MODULE = """
import os, time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

ARMED, ONCE = {armed!r}, {once!r}

class Own(CartPoleEnv):
    n = 0
    def step(self, action):
        self.n += 1
        if self.n == 40 and os.path.exists(ARMED):
            return self.broken(super().step(action))
        return super().step(action)

class Sleeper(Own):
    def broken(self, answer):
        time.sleep(1e6)  # asleep at the wheel

class Once(Own):
    def broken(self, answer):
        if os.path.exists(ONCE):
            os.unlink(ONCE)
            time.sleep(1e6)
        return answer

class Stubborn(Own):
    def broken(self, answer):
        while True:
            try:
                time.sleep(1e6)  # deaf to every call
            except Exception:
                pass

class NoNumber(Own):
    def broken(self, answer):
        return (answer[0], float("nan"), *answer[2:])

class NeverReady(CartPoleEnv):
    def reset(self, **how):
        if os.path.exists(ARMED):
            time.sleep(1e6)  # no way in
        return super().reset(**how)

for one in (Sleeper, Once, Stubborn, NoNumber, NeverReady):
    gymnasium.register(one.__name__ + "-v0", one, max_episode_steps=500)
"""


def test_environments_that_hang_or_count_wrongly_fail_their_own_tasks_only(make_bench, tmp_path, monkeypatch):
    """Three times in a row, with name, place and traceback; what hangs once is started again and learns on."""
    armed, once = tmp_path / "armed", tmp_path / "once"
    (tmp_path / "brokenenvs.py").write_text(MODULE.format(armed=str(armed), once=str(once)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bench = make_bench()
    sizes = {"n_steps": 64, "n_envs": 1, "n_collectors": 1, "batch_size": 64, "steps": 640}
    names = ("Sleeper", "Once", "Stubborn", "NoNumber", "NeverReady")
    tasks = [bench.spec(name, env=f"brokenenvs:{name}-v0", **sizes) for name in names]
    armed.touch()
    once.touch()
    late = "it did not come back within env_timeout_s = 1 s"
    with pytest.raises(EnvError, match=f"brokenenvs:NeverReady-v0: {late}"):
        bench.link.probe_env("brokenenvs:NeverReady-v0", 1.0)
    run = bench.start([bench.spec("good", steps=4096), *tasks], settings={"env_timeout_s": 1.0})
    ended = run.end()
    assert {name: row["state"] for name, row in ended.items()} == {
        "good": "done",
        "Once": "done",
        "Sleeper": "failed",
        "Stubborn": "failed",
        "NoNumber": "failed",
        "NeverReady": "failed",
    }
    reasons = {name: row["reason"] for name, row in ended.items()}
    step = "environment 0, step 39 of round 1"
    first = {name: reason.splitlines()[0] for name, reason in reasons.items()}
    often = "collector 0 was lost too often: brokenenvs:"
    assert first["Sleeper"] == f"{often}Sleeper-v0, {step}: {late}"
    assert first["Stubborn"] == f"{often}Stubborn-v0: {late}, nor when interrupted: killed"
    assert first["NoNumber"] == f"{often}NoNumber-v0, {step}: the reward is not finite: nan"
    assert first["NeverReady"] == f"{often}NeverReady-v0, environment 0, reset: {late}"
    assert "asleep at the wheel" in reasons["Sleeper"]
    assert 'brokenenvs.py", line' in reasons["Stubborn"]
    assert "no way in" in reasons["NeverReady"]
    losses = {
        name: len(stream.of(warmup.CollectorLost))
        for name, stream in check_laws(run.out).streams.items()
        if "task-" in name
    }
    assert losses == {f"task-{name}-a1": 3 for name in reasons} | {"task-good-a1": 0, "task-Once-a1": 1}
