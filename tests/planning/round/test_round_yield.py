"""A task that gives its slot away between two batches, and goes on with the gradients that it kept (3.5, 3.6, O7)."""

from round_words import Master, fence, kinds, of, only

from drlnb.records import round as words
from drlnb.records.columns.leasing import HoldPlanned, KeepGradient, RestoreGradients
from tests.matches import like


def stream(**more):
    """Return a task of three collectors that computes at arrival and has seen slots wanted, at its second round."""
    master = Master(n_collectors=3, hold="yield", streams=True, **{"switch_limit_frac": 10.0} | more)
    master.at_version_1()
    for i in range(3):
        master.arrived(i)
    master.granted(waited_s=1.0)  # somebody else had it: from now on gradients are kept
    for i in range(3):
        master.computed(i)
    master.made()
    master.committed()
    master.completed()
    return master


def test_a_slot_is_asked_for_when_there_is_work():
    """At the first arrival; the request says that its lease will be given away on demand."""
    master = stream()
    out = master.arrived(0)
    assert only(HoldPlanned, out) == HoldPlanned(round=2, action="request", planner="yield", reason="a batch is here")
    assert only(words.RequestSlot, out).yields
    assert [one.keep for one in of(words.ComputeGradient, master.granted())] == [True]


def test_without_demand_the_slot_is_kept():
    """An empty queue alone is no reason: nobody would have the slot."""
    master = stream()
    master.arrived(0)
    master.granted()
    assert master.computed(0, key="g0") == ()
    assert kinds(master.arrived(1)) == ["WarmupPlanned", "ComputeGradient"]


def test_on_demand_the_slot_is_returned_as_soon_as_nothing_is_left_to_compute():
    """Demand while a batch runs waits for its end: a batch boundary is the only place to give way."""
    master = stream()
    master.arrived(0)
    master.granted()
    assert master.yield_asked() == ()
    out = master.computed(0, key="g0", elapsed_s=0.5)
    assert only(HoldPlanned, out).action == "return"
    assert only(words.ReturnLease, out) == words.ReturnLease(
        fence=fence(master.token), clean=True, computed_s=(0.5,), yielded=True
    )
    assert not of(words.FinishRound, out)


def test_demand_that_comes_with_the_grant_counts():
    """The pool says with its answer that others wait."""
    master = stream()
    master.arrived(0)
    master.granted(demand=True)
    assert only(words.ReturnLease, master.computed(0, key="g0")).yielded


def test_demand_for_a_lease_that_is_back_is_nothing():
    """The word may cross the return."""
    master = stream()
    master.arrived(0)
    master.granted()
    assert master.yield_asked(token=99) == ()
    assert not of(words.ReturnLease, master.computed(0, key="g0"))


def test_what_was_kept_goes_to_the_next_slot_and_is_not_computed_again():
    """S5, I11: the next lease restores one gradient, computes two, and finishes with all three."""
    master = stream()
    master.arrived(0)
    master.granted(demand=True)
    master.computed(0, key="g0")
    master.arrived(1)
    master.arrived(2)
    out = master.granted()
    restore = only(RestoreGradients, out)
    assert (restore.collectors, restore.keys, restore.version) == ((0,), ("g0",), 2)
    assert [one.collector for one in of(words.ComputeGradient, out)] == [1, 2]
    assert not of(words.FinishRound, master.computed(1, key="g1"))
    assert not of(words.FinishRound, master.computed(2, key="g2"))
    assert only(words.FinishRound, master.restored())
    assert of(words.FinishRound, master.restored()) == [], "told twice"
    master.made()
    assert only(words.ReturnLease, master.committed()) == like(words.ReturnLease, yielded=False)


def test_a_lost_lease_costs_no_gradient_that_was_kept():
    """O7: after a death only what was not kept is computed again."""
    master = stream()
    master.arrived(0)
    master.arrived(1)
    master.granted()
    master.computed(0, key="g0")
    master.computed(1, key="")
    master.executor_died()
    out = master.granted()
    assert only(RestoreGradients, out).collectors == (0,)
    assert [one.collector for one in of(words.ComputeGradient, out)] == [1]


def test_what_was_staged_and_not_kept_is_no_reason_to_hold():
    """Gradients that are not kept are void after a return, so with them the queue is not empty."""
    master = stream()
    master.arrived(0)
    master.granted(demand=True)
    master.computed(0, key="g0")
    master.arrived(1)
    assert kinds(master.granted()) == ["RestoreGradients", "ComputeGradient"]
    master.yield_asked()
    assert master.computed(1, key="g1") == (), "the kept one is not back on the executor yet"
    assert only(words.ReturnLease, master.restored()).yielded


def test_a_round_that_is_being_finished_is_not_given_away():
    """After the last gradient the slot is held to the commit, whoever waits."""
    master = stream()
    for i in range(3):
        master.arrived(i)
    master.granted(demand=True)
    for i in range(3):
        master.computed(i, key=f"g{i}")
    assert master.yield_asked() == ()
    master.made()
    assert master.yield_asked() == ()
    assert not only(words.ReturnLease, master.committed()).yielded


def unkept():
    """Return a task of three collectors that nobody has competed with, whose first gradient is computed."""
    master = Master(n_collectors=3, hold="yield", streams=True, switch_limit_frac=10.0)
    master.at_version_1()
    master.arrived(0)
    assert not only(words.ComputeGradient, master.granted()).keep
    master.computed(0)
    return master


def test_what_was_computed_before_anybody_waited_is_fetched_and_then_the_slot_is_returned():
    """The gradient goes to the next slot; it is neither computed twice nor a reason to hold."""
    master = unkept()
    out = master.yield_asked()
    assert kinds(out) == ["HoldPlanned", "KeepGradient"]
    assert only(KeepGradient, out) == KeepGradient(fence=fence(master.token), slot="n0/cpu0", round=1, collector=0)
    assert kinds(master.yield_asked()) == ["HoldPlanned"], "it is on its way"
    assert master.kept(0, "old", token=99) == ()
    assert only(words.ReturnLease, master.kept(0, "g0")).yielded
    assert master.kept(0, "g0") == (), "told twice"
    master.arrived(1)
    out = master.granted()
    assert only(RestoreGradients, out) == like(RestoreGradients, collectors=(0,), keys=("g0",))
    assert [one.collector for one in of(words.ComputeGradient, out)] == [1]


def test_a_batch_that_comes_while_gradients_are_fetched_is_computed_first():
    """There is work again; after it the slot is returned, with both kept."""
    master = unkept()
    master.yield_asked()
    assert only(words.ComputeGradient, master.arrived(1)).keep
    assert [master.kept(0, key) for key in ("g0", "told twice")] == [(), ()]
    assert only(words.ReturnLease, master.computed(1, key="g1")).yielded
    assert master.machine.state.hold.done == {0: "g0", 1: "g1"}


def test_a_lease_that_is_lost_while_gradients_are_fetched_voids_them():
    """What did not arrive is computed again."""
    master = unkept()
    master.yield_asked()
    master.executor_died()
    out = master.granted()
    assert [one.collector for one in of(words.ComputeGradient, out)] == [0]
    assert not of(RestoreGradients, out)


def test_nothing_is_kept_while_nobody_wants_slots():
    """Copies cost time: who never waited and was never asked keeps none."""
    master = Master(n_collectors=2, hold="yield", streams=True, switch_limit_frac=10.0)
    master.at_version_1()
    for i in range(2):
        master.arrived(i)
    assert not any(one.keep for one in of(words.ComputeGradient, master.granted()))
    for i in range(2):
        master.computed(i)
    assert master.yield_asked() == (), "its round is being finished"
    master.made()
    master.committed()
    master.completed()
    master.arrived(0)
    assert only(words.ComputeGradient, master.granted()).keep, "in the next round it can"


def test_a_switch_that_is_too_dear_makes_it_as_round():
    """Half a second from a grant to its first batch of 0.5 s is above a fifth: the slot is held for the round."""
    master = stream(switch_limit_frac=0.2)
    for i in range(3):
        out = master.arrived(i)
        if i == 0:
            assert only(HoldPlanned, out).reason == "switch too dear: 0.5 s for batches of 0.5 s"
            assert of(words.RequestSlot, out)
            master.granted(demand=True)
        assert not of(words.ReturnLease, master.computed(i, key=f"g{i}"))


def test_epochs_wait_for_the_whole_round_while_slots_are_wanted():
    """A sweep over the whole round has no work before the last arrival (section 3, item 12)."""
    master = Master(n_collectors=2, hold="yield")
    master.at_version_1()
    assert of(words.RequestSlot, master.arrived(0)), "nobody wants slots: what can be done early is"
    master.granted()
    master.computed(0)
    out = master.yield_asked()
    assert only(words.ReturnLease, out).yielded
    assert only(HoldPlanned, out).reason == "nothing to compute, and somebody waits"
    assert of(words.RequestSlot, master.arrived(1))
    assert [one.collector for one in of(words.ComputeGradient, master.granted())] == [0, 1]
    master.computed(0)
    assert of(words.FinishRound, master.computed(1))
    master.made()
    master.committed()
    master.completed()
    out = master.arrived(0)
    assert only(HoldPlanned, out).reason == "1 of 2 collectors have sent, and slots are wanted"
    assert of(words.RequestSlot, master.arrived(1))


def test_the_initial_parameters_are_not_given_away():
    """Round 0 has no batches: demand finds nothing to give."""
    master = Master(hold="yield", streams=True)
    out = master.opened()
    assert not only(words.RequestSlot, out).yields
    master.granted(demand=True)
    assert master.yield_asked() == ()
    assert master.made()


def test_the_limit_of_a_switch_changes_while_the_task_trains():
    """It counts from the next plan on."""
    master = stream()
    assert master.set("leasing.switch_limit_frac", 0.5) == ()
    assert master.machine.state.hold.switch_limit_frac == 0.5
