"""Laws of jobs on slots under any order of events, held against a model that knows of them only what was said."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from job_words import (
    Jobs,
    back,
    drain,
    fails,
    finished,
    passed,
    raised,
    saved,
    silent,
    started,
    stopped,
    submit,
    taken,
    unwanted,
)

from drlnb.records.columns.placement import JobFailed, SlotMasked, StartGang, StopGang
from drlnb.records.common import SetDeadline

N_SLOTS = 6
SLOTS = st.sampled_from([f"s{i}" for i in range(N_SLOTS)])
N_STEPS = 30


class Laws(RuleBasedStateMachine):
    """A cluster of two nodes of three slots, whose driver may be slow, and late."""

    def __init__(self):
        super().__init__()
        self.jobs = Jobs(2, 3, planner="ect")
        self.n_heard = len(self.jobs.answers)
        self.t = 0.0
        #: What the model knows: slots out of use and why; job -> slots it wants; job -> (version, slots, stops).
        self.down, self.held, self.masked = set(), set(), set()
        self.waiting, self.gangs, self.over = {}, {}, set()
        #: Jobs of which a member raised and it is open why, and those of them whose gang has stopped.
        self.doubted, self.stopped = set(), set()
        self.versions, self.left_s = {}, {}
        self.n_submitted = 0

    def tell(self, *events):
        self.t += 1.0
        self.jobs.at(self.t, *events)
        self.hear()

    def hear(self):
        """Take in what was answered since, and check each gang as it starts."""
        for record in self.jobs.answers[self.n_heard :]:
            if isinstance(record, SetDeadline) and record.name.startswith("hold:"):
                self.held.add(record.name.removeprefix("hold:"))
            elif isinstance(record, SlotMasked):
                self.masked.add(record.slot)
            elif isinstance(record, StopGang):
                version, slots, _ = self.gangs[record.job]
                assert record.gang_version == version
                self.gangs[record.job] = version, slots, True
            elif isinstance(record, JobFailed):
                self.waiting.pop(record.job, None)
                self.over.add(record.job)
            elif isinstance(record, StartGang):
                self.starts(record)
        self.n_heard = len(self.jobs.answers)

    def starts(self, gang):
        assert len(set(gang.slots)) == self.waiting.pop(gang.job)
        assert set(gang.slots) <= self.free(), "each slot is alive, in use, and of no other gang"
        assert gang.gang_version == self.versions[gang.job] + 1
        assert 0.0 < gang.work_s <= self.left_s[gang.job], "kept work never falls"
        self.versions[gang.job], self.left_s[gang.job] = gang.gang_version, gang.work_s
        self.gangs[gang.job] = gang.gang_version, gang.slots, False

    def free(self):
        taken = {slot for _, slots, _ in self.gangs.values() for slot in slots}
        return {f"s{i}" for i in range(N_SLOTS)} - taken - self.down - self.held - self.masked

    def one(self, data, stops):
        """Draw a gang that runs, or is to stop."""
        return data.draw(st.sampled_from(sorted(job for job, gang in self.gangs.items() if gang[2] == stops)))

    def runs(self):
        return any(not gang[2] for gang in self.gangs.values())

    def stops(self):
        return any(gang[2] for gang in self.gangs.values())

    @rule(n=st.integers(1, N_SLOTS), work_s=st.floats(1.0, 1e6))
    def submit(self, n, work_s):
        job = f"j{self.n_submitted}"
        self.n_submitted += 1
        self.waiting[job], self.versions[job], self.left_s[job] = n, 0, work_s
        self.tell(submit(job, n, work_s))

    @rule(slot=SLOTS)
    def slot_fails(self, slot):
        self.down.add(slot)
        self.tell(fails(slot))

    @rule(slot=SLOTS)
    def slot_is_taken(self, slot):
        self.down.add(slot)
        self.tell(taken(slot))

    @precondition(lambda self: self.down)
    @rule(data=st.data())
    def slot_is_back(self, data):
        slot = data.draw(st.sampled_from(sorted(self.down)))
        self.down.discard(slot)
        self.tell(back(slot))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def hold_ends(self, data):
        slot = data.draw(st.sampled_from(sorted(self.held)))
        self.held.discard(slot)
        self.tell(passed(f"hold:{slot}"))

    @rule(slot=SLOTS)
    def mask(self, slot):
        self.tell(drain(slot))

    @precondition(lambda self: self.masked)
    @rule(data=st.data())
    def clear(self, data):
        slot = data.draw(st.sampled_from(sorted(self.masked)))
        self.masked.discard(slot)
        self.held.discard(slot)
        self.tell(drain(slot, back_again=True))

    @precondition(runs)
    @rule(data=st.data())
    def member_starts(self, data):
        job = self.one(data, stops=False)
        version, slots, _ = self.gangs[job]
        self.tell(started(job, version, data.draw(st.sets(st.sampled_from(slots)))))

    @precondition(runs)
    @rule(data=st.data())
    def job_finishes(self, data):
        job = self.one(data, stops=False)
        version, _, _ = self.gangs.pop(job)
        self.over.add(job)
        self.tell(finished(job, version))

    @precondition(runs)
    @rule(data=st.data(), kept_s=st.floats(0.0, 1e6))
    def job_saves(self, data, kept_s):
        job = self.one(data, stops=False)
        self.tell(saved(job, self.gangs[job][0], kept_s))

    @precondition(runs)
    @rule(data=st.data())
    def function_raises(self, data):
        job = self.one(data, stops=False)
        version, slots, _ = self.gangs[job]
        self.doubted.add(job)
        self.tell(raised(job, version, slots[-1]))

    @precondition(runs)
    @rule(data=st.data(), is_stuck=st.booleans())
    def member_hangs(self, data, is_stuck):
        job = self.one(data, stops=False)
        version, slots, _ = self.gangs[job]
        self.tell(silent(job, version, slots, slots[:1] if is_stuck else ()))

    @precondition(lambda self: self.doubted)
    @rule(data=st.data())
    def doubt_ends(self, data):
        """Let a gang end whose member raised: it may have stopped before."""
        job = data.draw(st.sampled_from(sorted(self.doubted)))
        self.doubted.discard(job)
        if job in self.stopped:
            self.stopped.discard(job)
            self.waiting[job] = len(self.gangs.pop(job)[1])
        self.tell(passed(f"blame:{job}"))

    @precondition(stops)
    @rule(data=st.data(), kept_s=st.floats(0.0, 1e6))
    def gang_has_stopped(self, data, kept_s):
        job = self.one(data, stops=True)
        version, slots, _ = self.gangs[job]
        if job in self.doubted:
            self.stopped.add(job)
        else:
            del self.gangs[job]
            self.waiting[job] = len(slots)
        self.tell(stopped(job, version, kept_s))

    @precondition(lambda self: self.versions)
    @rule(data=st.data(), kept_s=st.floats(0.0, 1e6))
    def something_is_late(self, data, kept_s):
        """Change nothing by what comes of older gangs, or of jobs that are over."""
        job = data.draw(st.sampled_from(sorted(self.versions)))
        version = self.versions[job] - (job not in self.over)
        before = self.jobs.machine.snapshot()
        if version > 0:
            for event in (finished(job, version), stopped(job, version, kept_s), saved(job, version, kept_s)):
                self.tell(event)
                assert self.jobs.machine.snapshot() | {"t": 0.0} == before | {"t": 0.0}

    @precondition(lambda self: self.gangs)
    @rule(data=st.data(), kind=st.sampled_from(["start", "stop"]))
    def patience_ends(self, data, kind):
        self.tell(passed(f"{kind}:{data.draw(st.sampled_from(sorted(self.gangs)))}"))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def user_stops(self, data):
        self.tell(unwanted(data.draw(st.sampled_from(sorted(self.waiting)))))

    @invariant()
    def no_job_that_fits_waits_and_none_is_lost(self):
        assert all(n > len(self.free()) for n in self.waiting.values())
        known = [*self.waiting, *self.gangs, *self.over]
        assert sorted(known) == sorted(self.versions)
        phases = {job: each.phase for job, each in self.jobs.machine.state.jobs.items()}
        said = {job: "stopping" if stops else "running" for job, (_, _, stops) in self.gangs.items()}
        assert phases == said | dict.fromkeys(self.waiting, "waiting")

    @invariant()
    def a_restored_machine_is_the_same(self):
        assert self.jobs.restored().snapshot() == self.jobs.machine.snapshot()


Laws.TestCase.settings = settings(max_examples=8, stateful_step_count=N_STEPS, deadline=None)
TestJobs = Laws.TestCase
