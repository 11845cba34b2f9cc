"""Carry out each command of the round machine: a table from command to coroutine; no rule lives here."""

from typing import TYPE_CHECKING

from drlnb.records import replay
from drlnb.records import round as words
from drlnb.records.columns import batching, distribution, leasing, swapping, warmup
from drlnb.runtime.machine_host import EffectTable
from drlnb.runtime.master.checkpoint_effects import CheckpointEffects
from drlnb.runtime.master.collector_effects import CollectorEffects
from drlnb.runtime.master.replay_effects import ReplayEffects
from drlnb.runtime.master.share_effects import ShareEffects
from drlnb.runtime.master.slot_effects import SlotEffects

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["effects"]


def effects(master: "Master") -> EffectTable:
    """Return what carries out the commands of one master's machine; each ends in exactly one closing event.

    What takes no time is carried out at once, of the rest a coroutine is returned.
    """
    collectors = CollectorEffects(master)
    ring, slot = ReplayEffects(master, collectors), SlotEffects(master)
    shares = ShareEffects(master, slot)
    checkpoints = CheckpointEffects(master, collectors.ask, collectors.found, ring.saved)

    def drop(command: words.DropExperience) -> None:
        master.experience.pop(command.key, None)

    return {
        replay.StartReplay: ring.start,
        replay.DrawMinibatches: ring.draw,
        replay.CarryParameters: ring.carry,
        replay.RestartTask: ring.restart,
        words.RequestSlot: slot.request,
        words.InitialiseParameters: slot.initialise,
        words.ComputeGradient: slot.stage,
        leasing.KeepGradient: slot.keep_gradient,
        leasing.RestoreGradients: slot.restore_gradients,
        batching.ComputeShare: shares.compute,
        batching.CutShare: shares.cut,
        batching.JoinRound: shares.join,
        batching.ApplyGradients: shares.apply,
        words.FinishRound: slot.finish_round,
        words.CommitParameters: slot.commit,
        swapping.ApplySwapPlan: slot.apply_plan,
        swapping.SearchSwapPlan: slot.search_plan,
        words.ReturnLease: slot.give_back,
        words.WriteCheckpoint: checkpoints.write,
        warmup.StartCollector: collectors.start,
        warmup.StopCollector: collectors.stop,
        warmup.RevokeStart: collectors.revoke_start,
        warmup.WakeCollector: collectors.wake,
        words.Evaluate: collectors.evaluate,
        words.AskPlacement: lambda command: master.place(command.planner),
        words.EndTask: lambda command: master.finish(command.state, command.reason),
        words.DropExperience: drop,
        distribution.SendParameters: master.sender.send,
        distribution.AskMissing: master.sender.ask,
        distribution.MeasureLink: master.sender.measure,
    }
