"""What acts between two rounds?  Settings, checkpoints, pauses, stops, the final evaluation and the end."""

from drlnb.planning.leasing.hold import hold_planner
from drlnb.planning.round.state import RoundState
from drlnb.records import round as words
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged

__all__ = ["Boundary"]


class Boundary(RoundState):
    """The part of the round machine that a person steers, and that ends the task."""

    def _boundary(self, t: float) -> None:
        done = self.progress.n_timesteps >= self.config["total_timesteps"]
        if done:
            self.closing = ["checkpoint", "evaluation"]
            self._take_warmup(self.warmup.go_on(t))  # whoever plays the evaluation must be up, pause or not
        elif "stop" in self.asked:
            self.closing = ["checkpoint"]
            self._take_warmup(self.warmup.end(f"stop: {self.asked['stop']}"))
        self.resting = "pause" in self.asked and not self.closing
        self.judging = not self.closing and self._evaluation_due()
        if self.closing or self.resting or "checkpoint" in self.asked or self._checkpoint_due(t):
            self._write_checkpoint(t, "end" if done else next(iter(self.asked), "periodic"))
            self.asked.pop("checkpoint", None)
        if done or "stop" not in self.asked:
            self._publish()

    # ------------------------------------------------------------------ checkpoints
    def _checkpoint_due(self, t: float) -> bool:
        age_s = t - self.checkpoint_t
        by_round = self.progress.n_rounds % self.config["checkpoint_every"] == 0
        return bool((by_round and age_s >= self.config["checkpoint_min_s"]) or age_s >= self.config["checkpoint_max_s"])

    def _write_checkpoint(self, t: float, reason: str) -> None:
        self.gathering, self.unsaved = True, False
        self.checkpoint_t = t
        self._out.append(
            words.WriteCheckpoint(
                version=self.progress.version,
                n_rounds=self.progress.n_rounds,
                n_timesteps=self.progress.n_timesteps,
                reason=reason,
            )
        )

    def _checkpoint_gathered(self, event: words.CheckpointGathered) -> None:
        if event.version == self.progress.version:
            self.gathering = False
            self._go_on()

    def _checkpoint_written(self, event: words.CheckpointWritten) -> None:
        if event.version != self.progress.version:
            return  # an older one, that a slow disk has finished only now
        self.gathering = False
        if "checkpoint" in self.closing:
            if event.failure:
                self._end("failed", f"the last checkpoint could not be written: {event.failure}")
                return
            self.closing.remove("checkpoint")
            self._close_if_ready()
        elif self.resting:
            self._enter("paused")
            if "stop" in self.asked:
                self._end("stopped", self.asked["stop"])
        else:
            self._go_on()

    def _checkpoint_asked(self, event: words.CheckpointAsked) -> None:
        del event
        self.asked.setdefault("checkpoint", "asked for")

    # ------------------------------------------------------------------ pause, resume, stop, settings
    def _pause_asked(self, event: words.PauseAsked) -> None:
        del event
        self.asked.setdefault("pause", "asked for")

    def _resume_asked(self, event: words.ResumeAsked) -> None:
        del event
        self.asked.pop("pause", None)
        self.resting = False
        self._go_on()

    def _stop_asked(self, event: words.StopAsked) -> None:
        if self.closing:
            return
        if self.phase == "paused" and self.unsaved:  # the pause's checkpoint does not know what was changed in it
            self.asked["stop"] = event.reason
            self.closing = ["checkpoint"]
            self._write_checkpoint(event.t, "stop")
        elif self.phase == "paused" or not self.n_bytes:
            self._end("stopped", event.reason)
        else:
            self.asked["stop"] = event.reason

    def _begin_round(self) -> None:
        """Let what a person changed count from here on: the round's first collectors are woken now."""
        if self.begun == self.progress.version:
            return
        self.begun = self.progress.version
        self.in_force = dict(sorted(self.settings.items()))
        if self.next_hold:
            self.hold.planner = hold_planner(self.next_hold)
            self.next_hold = None

    def _setting_changed(self, event: SettingChanged) -> None:
        if event.key.startswith("rl."):
            self.settings[event.key], self.unsaved = event.value, True
            return
        if event.key == "leasing.switch_limit_frac":
            self.hold.switch_limit_frac = float(event.value)
            return
        if event.key != "leasing.hold":
            return  # warm-up hears its own keys
        try:
            self.next_hold = hold_planner(str(event.value)).name
        except ValueError as error:
            self._out.append(RequestRefused(subject=event.key, reason=str(error)))

    # ------------------------------------------------------------------ evaluations
    def _plan_evaluation(self) -> None:
        every = self.config["eval_freq"]
        self.eval_at = (self.progress.n_timesteps // every + 1) * every if every else 0

    def _evaluation_due(self) -> bool:
        if not self.config["eval_freq"] or self.progress.n_timesteps < self.eval_at:
            return False
        self._plan_evaluation()
        return True

    def _evaluate(self) -> None:
        if self.evaluator is not None or (self.judging and (self.resting or self.gathering)):
            return
        final = "evaluation" in self.closing
        version = self.progress.version
        for i, member in self.crew.members.items():
            if member.status in {"ready", "sent"} and self.crew.hosts.get(member.node or "") == version:
                self.evaluator = i
                self._enter("evaluating")
                self._out.append(
                    words.Evaluate(
                        collector=i,
                        node=member.node or "",
                        version=version,
                        n_episodes=self.config["n_eval_episodes" if final else "eval_episodes"],
                        deterministic=final or self.config["eval_deterministic"],
                    )
                )
                return

    def _evaluation_finished(self, event: words.EvaluationFinished) -> None:
        final = "evaluation" in self.closing
        if not (final or self.judging) or self.evaluator is None:
            return  # it is over, or its collector was lost: another one plays it
        if event.failure:
            self._end("failed", f"{'the final' if final else 'an'} evaluation failed: {event.failure}")
        elif final:
            self.closing.remove("evaluation")
            self._close_if_ready()
        else:
            self._judged(event)

    def _judged(self, event: words.EvaluationFinished) -> None:
        self.judging, self.evaluator = False, None
        if self.eval_best is None or event.mean_reward > self.eval_best:
            self.eval_best = event.mean_reward
            if self.config["eval_keep_best"]:
                self._write_checkpoint(event.t, "best")
        self._wake()

    # ------------------------------------------------------------------ the end
    def _close_if_ready(self) -> None:
        if self.closing:
            return
        if self.progress.n_timesteps >= self.config["total_timesteps"]:
            self._end("done", f"{self.progress.n_timesteps} steps made")
        else:
            self._end("stopped", self.asked.get("stop", "asked for"))

    def _task_failed(self, event: words.TaskFailed) -> None:
        self._end("failed", f"{event.reason}\n{event.detail}".strip())

    def _end(self, state: str, reason: str) -> None:
        self._leave(f"task {state}")
        self._out.append(words.EndTask(state=state, reason=reason))

    def _leave(self, reason: str) -> None:
        """Return what is held, free what is here, and end."""
        if self.hold.held:
            fence, computed_s = self.hold.returned()
            self._out.append(words.ReturnLease(fence=fence, clean=False, computed_s=computed_s))
            self.scalars.ended(self.last_t)
        self.hold.lost()
        self._take_warmup(self.warmup.end(reason))
        batches = self.hold.next_round()
        for batch in batches or tuple(self.fragments.values()):  # drawn from, fragments have been freed
            self._drop(batch.key, batch.collector, self.progress.version, reason)
        self.fragments.clear()
        self._enter("ended")
