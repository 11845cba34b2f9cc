"""One split in closed form: by hand, and against a driver that plays it event by event."""

import heapq
import itertools
import random

import pytest

from drlnb.planning.batching import Member
from drlnb.planning.batching.gather import Gathering, chunk_s, quorum_problem
from drlnb.planning.batching.steps import play_split


def members(*speeds_hz, o=0.0):
    return [Member(id=name, speed_hz=hz, overhead_s=o) for name, hz in zip("abcdefgh", speeds_hz, strict=False)]


def test_all_are_waited_for_where_nothing_else_is_asked():
    """10 units each at 10, 5 and 1 a second: 1, 2 and 10 s and an overhead of .5; the mean wait is 9 + 8 + 0 by 3."""
    step = play_split([10, 10, 10], members(10, 5, 1, o=0.5), comm_s=0.25)
    assert step.finish_s == (1.5, 2.5, 10.5)
    assert (step.first, step.reached_s, step.closed_s, step.duration_s) == ((0, 1, 2), 10.5, 10.5, 10.75)
    assert (step.n_used, step.n_lost, step.wait_s) == (30, 0, pytest.approx(17 / 3))


def test_who_has_no_share_is_not_waited_for():
    """A share of 0 has no overhead, and does not count for the quorum."""
    step = play_split([10, 0, 10], members(10, 1, 5, o=0.5), gathering=Gathering(quorum=1.0))
    assert (step.first, step.duration_s, step.finish_s[1], step.used) == ((0, 2), 2.5, 0.0, (10, 0, 10))


def test_2_3_the_targets_are_all_but_the_first_so_many():
    """Mechanism 2-3: 2 of 4 in the order of their answers, which is not that of their ids."""
    step = play_split([10] * 4, members(1, 10, 2, 5), gathering=Gathering(quorum=0.5, late="drop"))
    assert step.first == (1, 3)
    assert (step.reached_s, step.closed_s) == (2.0, pytest.approx(2.3))
    assert step.used == (0, 10, 0, 10)
    assert step.free_s == (10.0, 1.0, 5.0, 2.0), "who is dropped finishes, and sits out"


def test_2_4_targets_are_looked_for_from_the_last_needed_answer_on():
    """Mechanism 2-4: the quorum is reached at 2 s; 2.5 s is within .5 s of it, at the boundary, not within .4."""
    those = members(10, 5, 4)
    for grace_s, used in ((0.5, (10, 10, 10)), (0.4, (10, 10, 0))):
        step = play_split([10] * 3, those, gathering=Gathering(quorum=2, deadline_s=grace_s, late="drop"))
        assert (step.used, step.closed_s) == (used, min(2.5, 2.0 + grace_s))


def test_2_5_a_late_answer_is_used_if_it_is_younger_than_a_threshold():
    """Mechanism 2-5: strictly; and only late ones are asked for their age."""
    those = members(10, 5, 4)
    for max_age_s, used in ((2.51, 10), (2.5, 0), (1.0, 0)):
        step = play_split([10] * 3, those, gathering=Gathering(quorum=2, deadline_s=1.0, max_age_s=max_age_s))
        assert step.used == (10, 10, used)
    # without a threshold twice the planned length: 1.25 s makes 2.5 s
    for predicted_s, used in ((1.26, 10), (1.25, 0)):
        step = play_split([10] * 3, those, gathering=Gathering(quorum=2, deadline_s=1.0), predicted_s=predicted_s)
        assert step.used[2] == used


def test_2_10_a_late_member_is_cut_at_the_end_of_its_chunk():
    """Mechanism 2-10: planned as 100 units a second in 1 s, chunks are of 6 units (1/16 s); it makes 80 in fact.

    The quorum is reached at 1 s, the time is over at 1.01 s; 80.8 units are begun then, so the chunk that ends at
    84 units is the last: at 1.05 s, which is .04 s after the cut and too late.  With 1.03 s it is in at once.
    """
    those = members(100, 80)
    for grace_s, used, closed_s in ((0.01, 0, 1.03), (0.03, 84, 1.05), (0.05, 84, 1.05)):
        step = play_split(
            [100, 100],
            those,
            gathering=Gathering(quorum=0.5, deadline_s=grace_s, max_age_s=9.0),
            planned_hz=[100, 100],
            predicted_s=1.0,
        )
        assert (step.used, step.n_lost, step.closed_s) == ((100, used), 100 - used, pytest.approx(closed_s))
        assert step.free_s[1] == pytest.approx(1.05)


def mean_content(gathering):
    """Return the mean of what is used where half of all shares hold slow content, 1, and the others fast content, 0."""
    value = used = 0
    for contents in itertools.product((0, 1), repeat=8):
        gang = members(*[50 if content else 100 for content in contents])
        step = play_split([16] * 8, gang, gathering=gathering, planned_hz=[75] * 8, predicted_s=16 / 75)
        value += sum(n * content for n, content in zip(step.used, contents, strict=True))
        used += step.n_used
    return value / used


def test_trap_4_who_is_late_is_late_by_what_it_has():
    """Trap 4: slow content takes twice as long, six of eight are waited for; 37 of 256 times two or fewer have it.

    A quarter of a share is late per split: dropped, 3.75 of 7.75 shares are slow.  Cut after .184 s, each of them has
    made 10 of its 16 units by .2 s.  Nothing is amiss where all are waited for.
    """
    assert mean_content(Gathering()) == 0.5
    assert mean_content(Gathering(quorum=6, late="drop")) == pytest.approx(3.75 / 7.75)
    assert mean_content(Gathering(quorum=6)) == pytest.approx((3.75 + 0.25 * 10 / 16) / (7.75 + 0.25 * 10 / 16))


def test_what_is_cut_before_it_began_returns_nothing():
    """Its overhead is not over yet."""
    those = [*members(100), Member(id="b", speed_hz=100, overhead_s=5.0)]
    step = play_split([100, 100], those, gathering=Gathering(quorum=0.5))
    assert (step.used, step.free_s[1]) == ((100, 0), 5.0)


def test_what_a_cut_returns_must_be_young_enough():
    """As any late answer."""
    gathering = Gathering(quorum=0.5, deadline_s=0.05, max_age_s=1.0)
    assert play_split([100, 100], members(100, 80), gathering=gathering).used == (100, 0)


@pytest.mark.parametrize(
    ("quorum", "n", "needed"),
    [(1.0, 8, 8), (0.75, 8, 6), (0.7, 10, 7), (0.71, 10, 8), (0.01, 8, 1), (6, 8, 6), (6, 4, 4), (0.5, 0, 0)],
)
def test_how_many_are_needed(quorum, n, needed):
    """A fraction is rounded up; a count is no more than there are."""
    assert Gathering(quorum=quorum).needed(n) == needed


def test_chunks_are_by_time():
    """A sixteenth of the planned length, and no less than 20 ms: 8 units would be half a second for a slow member."""
    assert (chunk_s(3.2), chunk_s(0.1)) == (0.2, 0.02)


@pytest.mark.parametrize("quorum", [1, 0, 5, -2, True, 0.0, 1.5, -0.5, float("nan"), float("inf"), "all", None])
def test_a_quorum_that_could_be_read_in_two_ways_is_refused(quorum):
    """It is not guessed whether 1 of 4 members is one, or all of them."""
    expected = f"quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 to 4, got {quorum!r}"
    assert quorum_problem(quorum, 4) == expected


def test_one_member_is_all_of_them():
    """There is only one way to read it."""
    assert quorum_problem(1, 1) == quorum_problem(1.0, 1) == quorum_problem(0.5, 1) == ""
    assert quorum_problem(2, 1) == "quorum must be a fraction above 0 and up to 1.0 (all), got 2"


class Driver:
    """Plays a split event by event: members work chunk by chunk, the master counts answers and sets deadlines."""

    def __init__(self, sizes, those, gathering, planned_hz, predicted_s):
        self.sizes, self.those, self.gathering, self.predicted_s = sizes, those, gathering, predicted_s
        self.chunk = [max(1, int(hz * chunk_s(predicted_s))) for hz in planned_hz]
        self.done, self.answered, self.t = [0] * len(sizes), {}, 0.0
        self.left = [i for i, n in enumerate(sizes) if n]
        self.is_cut, self.used, self.first = False, [0] * len(sizes), []
        self.heap = [(each.overhead_s, 0, i) for i, each in enumerate(those) if sizes[i]]
        heapq.heapify(self.heap)

    def play(self):
        while True:
            self.t, kind, i = heapq.heappop(self.heap)
            if kind == 0 and self.works(i):
                continue
            if kind == 1 and not self.is_cut:  # the deadline
                if self.gathering.late == "drop":
                    return self.t
                self.is_cut = True
                heapq.heappush(self.heap, (self.t + 0.02, 2, -1))
            if kind == 2 or not self.left:
                return self.t

    def works(self, i):
        """Go on with another chunk, or answer; return whether the split goes on."""
        if self.done[i] < self.sizes[i] and not self.is_cut:
            n = min(self.chunk[i], self.sizes[i] - self.done[i])
            self.done[i] += n
            finish_s = self.those[i].overhead_s + self.done[i] / self.those[i].speed_hz
            heapq.heappush(self.heap, (finish_s, 0, i))
            return True
        self.left.remove(i)
        n_first = self.gathering.needed(sum(n > 0 for n in self.sizes))
        if len(self.first) < n_first:
            self.first.append(i)
            self.used[i] = self.done[i]
            if len(self.first) == n_first:
                self.reached_s = self.t
                heapq.heappush(self.heap, (self.t + self.gathering.grace_s(self.t), 1, -1))
        elif self.gathering.is_fresh(self.t, self.predicted_s):
            self.used[i] = self.done[i]
        return bool(self.left)


def test_a_driver_of_events_says_the_same():
    """To 1e-9 on 300 splits at random: who was first, what is used, when it is over."""
    draw = random.Random(11)
    late = 0
    for _ in range(300):
        n = draw.randint(1, 7)
        those = [Member(id=str(i), speed_hz=draw.uniform(5, 400), overhead_s=draw.uniform(0, 0.1)) for i in range(n)]
        sizes = [draw.choice([0, draw.randint(1, 300)]) for _ in those]
        sizes[draw.randrange(n)] = draw.randint(1, 300)
        gathering = Gathering(
            quorum=draw.choice([1.0, 0.75, 0.5, 2]),
            deadline_s=draw.choice([None, draw.uniform(0, 1)]),
            max_age_s=draw.choice([None, draw.uniform(0.1, 3)]),
            late=draw.choice(["cut", "drop"]),
        )
        planned_hz = [each.speed_hz * draw.uniform(0.5, 2) for each in those]
        driver = Driver(sizes, those, gathering, planned_hz, predicted_s := draw.uniform(0.1, 3))
        closed_s = driver.play()
        step = play_split(sizes, those, gathering=gathering, planned_hz=planned_hz, predicted_s=predicted_s, comm_s=0.0)
        assert (list(step.first), list(step.used)) == (driver.first, driver.used)
        assert step.closed_s == pytest.approx(closed_s, abs=1e-9)
        assert step.reached_s == pytest.approx(driver.reached_s, abs=1e-9)
        assert step.n_used + step.n_lost == sum(sizes)
        late += step.n_lost > 0
    assert late > 50, "or nothing was tried"
