"""Make a network of namespaces on one machine: a bridge, and hosts whose cards send and receive at a given rate.

No namespace has a name, and no interface lies outside of them: each is held by the rig's processes alone, so it goes
with the last of them, however they end.  It takes Linux, root, `ip` and `tc`.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["HUB", "connect", "counters", "host_address", "join", "sent_again", "unshare_network"]

#: Address of the bridge, where the scheduler is.
HUB = "10.231.0.1"
_PREFIX = 16
_CLONE_NEWNET = 0x40000000
#: What an Ethernet frame of 1,500 bytes carries beside its headers, time stamps included.
_SEGMENT_BYTES = 1448
#: A token bucket as one card has it: a burst of two large segments, and a queue as short as a switch's.
_SHAPED = "root tbf rate {rate_mbit}mbit burst 128kb latency 40ms"


def host_address(number: int) -> str:
    """Return the address of a host; number 0 is the learner."""
    return f"10.231.1.{number + 1}"


def unshare_network() -> None:
    """Move this process into a new namespace of its own, which has no way out.

    Raises
    ------
    OSError
        If the system does not allow it.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"no network namespace: {os.strerror(ctypes.get_errno())} (are you root?)")


def connect(pids: Sequence[int], rate_mbit: float) -> None:
    """Make this process's namespace the hub, and connect the namespace of each process with it.

    Parameters
    ----------
    pids
        Host i's process has interface ``eth0`` then, the hub ``v<i>``.
    rate_mbit
        Rate at which each host receives, in Mbit/s.

    Raises
    ------
    OSError
        If `ip` or `tc` cannot do it; the message is theirs.
    """
    commands = ["link set lo up", "link add bridge type bridge", f"addr add {HUB}/{_PREFIX} dev bridge"]
    commands += ["link set bridge up"]
    for i, pid in enumerate(pids):
        commands += [f"link add v{i} type veth peer name eth0 netns {pid}", f"link set v{i} master bridge up"]
    _batch("ip", commands)
    _batch("tc", [f"qdisc add dev v{i} {_SHAPED.format(rate_mbit=rate_mbit)}" for i in range(len(pids))])


def join(number: int, rate_mbit: float) -> None:
    """Bring up the card of the host whose namespace this is; it sends `rate_mbit` Mbit/s.

    Raises
    ------
    OSError
        If `ip` or `tc` cannot do it.
    """
    address = f"addr add {host_address(number)}/{_PREFIX} dev eth0"
    _batch("ip", ["link set lo up", address, "link set eth0 up"])
    Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("reno", encoding="ascii")
    _batch("tc", [f"qdisc add dev eth0 {_SHAPED.format(rate_mbit=rate_mbit)}"])


def counters(hub: int, n: int) -> list[tuple[int, int]]:
    """Return the bytes that each of `n` hosts has sent and received, by the interfaces of the hub's process."""
    text = Path(f"/proc/{hub}/net/dev").read_text(encoding="ascii")
    fields = {name.strip(): rest.split() for name, _, rest in (line.partition(":") for line in text.splitlines())}
    # What a host sends, its interface at the hub receives: columns 0 and 8.
    return [(int(fields[f"v{i}"][0]), int(fields[f"v{i}"][8])) for i in range(n)]


def sent_again() -> int:
    """Return the bytes that TCP has sent again from this process's namespace, full segments assumed."""
    names, values = (
        line.split()
        for line in Path("/proc/self/net/snmp").read_text(encoding="ascii").splitlines()
        if line[:4] == "Tcp:"
    )
    return int(values[names.index("RetransSegs")]) * _SEGMENT_BYTES


def _batch(program: str, commands: Iterable[str]) -> None:
    done = subprocess.run(
        [program, "-batch", "-"], input="\n".join(commands) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{program}: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else done.returncode}")
