"""What happens to a lease whose function, slot or holder fails: each costs no more than it must."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import drlnb
from drlnb.records.errors import LeaseLost
from tests.fleet.cluster.conftest import ends
from tests.runtime.live import titled, wait_until


@pytest.mark.cluster
def test_what_goes_wrong_on_a_slot_is_told(quick):
    """Hanging, cancelled, unstoppable, killed: each costs no more than it must, and the next lease works."""
    fleet = quick()
    _hangs(fleet)
    asyncio.run(_cancelled(fleet))
    assert [reason for _, reason in ends(fleet)] == ["returned", "returned"]
    _stuck(fleet)
    _killed(fleet)
    with fleet.lease() as lease:
        assert lease.run(len, (1, 2)) == 2
    wait_until(lambda: None not in dict(ends(fleet)).values(), "ends of all leases")
    assert [reason for _, reason in ends(fleet)][2:] == ["slot-failed", "slot-failed", "returned"]


def _hangs(fleet):
    """Silent for timeout_s, it is interrupted where it hangs and the lease goes on; saying progress, it may go on."""
    with fleet.lease(timeout_s=1.0) as lease:

        def work():
            import time

            for _ in range(20):
                time.sleep(0.1)
                lease.progress()
            return "done"

        def hang():
            import time

            time.sleep(60)

        with pytest.raises(TimeoutError, match="no sign of life for 1 s and was interrupted") as error:
            lease.run(hang)
        assert "in hang" in str(error.value.__cause__)
        assert lease.run(work) == "done"


async def _cancelled(fleet):
    """`wait_for` around a submitted function stops it on the slot; the lease goes on with the next one."""
    async with fleet.lease() as lease:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lease.submit(time.sleep, 60), 0.5)
        began = time.monotonic()
        assert await lease.submit(len, (1,)) == 1
        assert time.monotonic() - began < 20


def _stuck(fleet):
    """Lose the lease, and the executor, by a function that does not end when it is interrupted."""

    def stuck():
        import signal
        import time

        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        time.sleep(60)

    with fleet.lease(timeout_s=0.5) as lease:
        with pytest.raises(LeaseLost, match=r"no progress for 0\.5 s: killed"):
            lease.run(stuck)
        with pytest.raises(LeaseLost):
            lease.run(len, ())


def _killed(fleet):
    """Lose the lease at once when the executor dies under a function."""
    with fleet.lease() as lease:
        (executor,) = titled("drlnb executor", fleet.pid)
        killer = threading.Timer(0.5, executor.kill)
        killer.start()
        with pytest.raises(LeaseLost, match="signal 9"):
            lease.run(time.sleep, 60)
        killer.join()


def _break_the_device():
    import torch

    return float(torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")].sum())


@pytest.mark.gpu
def test_a_function_that_breaks_the_device_is_the_only_one_to_suffer():
    """It gets the error of its kernel; the next holder has a process whose device works."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    with drlnb.Fleet(slots=1) as fleet:
        with fleet.lease(name="wrong") as lease, pytest.raises(RuntimeError, match="assert"):
            lease.run(_break_the_device)
        with fleet.lease(name="next", wait_s=120.0) as lease:
            assert lease.run(lambda: float(torch.ones(2, device="cuda").sum())) == 2.0


_HOLDER = """
    import signal, sys, time, drlnb
    from drlnb.records.errors import LeaseLost

    def forever():
        import time
        time.sleep(120)

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # started in the background it would be ignored
        with drlnb.Fleet(sys.argv[1], slots=1) as fleet, fleet.lease(name="other") as lease:
            print(lease.run(len, (1,)), flush=True)
            if sys.argv[2] != "SIGSTOP":
                lease.run(forever)
            try:
                while True:
                    lease.run(len, (1,))
            except LeaseLost as lost:
                print(lost)
"""


@pytest.mark.cluster
def test_the_slot_of_a_dead_holder_is_free_again(quick, tmp_path):
    """By Ctrl-C a holder gives its slot back; killed or stopped it loses it by the time to live, and wakes up to it."""
    fleet = quick()
    fleet.journal()  # from here on
    script = tmp_path / "holder.py"
    script.write_text(textwrap.dedent(_HOLDER))
    for how in (signal.SIGINT, signal.SIGKILL, signal.SIGSTOP):
        command = [sys.executable, str(script), fleet.address, how.name]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert holder.stdout.readline() == "1\n"
            time.sleep(0.3)  # its function is on the slot
            holder.send_signal(how)
            with fleet.lease(wait_s=60.0) as lease:
                assert lease.run(len, (1, 2)) == 2
                holder.send_signal(signal.SIGCONT)
                said, _ = holder.communicate(timeout=20)
                assert lease.run(len, (1, 2)) == 2
            assert holder.returncode != 0 or how == signal.SIGSTOP
            assert ("is lost: " in said) == (how == signal.SIGSTOP)
        finally:
            holder.kill()
            holder.communicate()
    assert [reason for _, reason in ends(fleet)][::2] == ["returned", "expired", "expired"]
    assert {reason for _, reason in ends(fleet)[1::2]} == {"returned"}
