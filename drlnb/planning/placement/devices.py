"""Resolve the devices that a user names in PyTorch's spelling.

``cuda:K`` is the device that torch on a node counts as K, ``GPU-...`` or ``MIG-...`` the one with this UUID, ``cpu:K``
a virtual one.  A name without a node means that device of every node; several workers of one machine see the same
devices, which count once and go to the first of them.  A slot's own spelling, ``NODE/gpuK`` or ``NODE/cpuK``, means
that of one node.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drlnb.records.errors import ConfigError

__all__ = ["Device", "NodeDevices", "devices_problem", "is_device_name", "named_devices"]

#: Virtual devices of a node that an error lists one by one.
_LISTED = 4
_INDEXED = re.compile(r"(?:cuda:|gpu)(?P<cuda>[0-9]{1,4})|(?:cpu:|cpu)(?P<cpu>[0-9]{1,4})")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Fa-f][-0-9A-Fa-f]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevices:
    """What a node has."""

    node: str
    #: Machine that it runs on: its workers share cores and devices.
    host: str
    n_cpus: int
    #: (index as torch counts here, UUID) of its CUDA devices.
    cuda: tuple[tuple[int, str], ...] = ()
    #: Why it has none, in words.
    why_no_cuda: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that carries slots."""

    node: str
    #: First part of its slots' names, such as ``n0/gpu1`` or ``0/cpu0``.
    name: str
    #: What its executors see: ``cuda:<uuid>``, or ``cpu:K``.
    seen: str

    @property
    def key(self) -> str:
        """What makes it one device: workers of a machine may see the same CUDA device, virtual ones are their own."""
        return self.seen if self.seen.startswith("cuda:") else self.name


def is_device_name(text: str) -> bool:
    """Whether a text can name a device at all.

    Examples
    --------
    >>> [is_device_name(text) for text in ("cuda:0", "n0/gpu1", "0,2", "cuda")]
    [True, True, False, False]
    """
    return _kind(text) != ""


def devices_problem(names: object) -> str:
    """Return what is wrong with a list of devices whatever there is, in words; empty if nothing is.

    Examples
    --------
    >>> devices_problem(["cuda:0", "cpu:0"])
    'slots mixes CUDA devices (cuda:0) with virtual ones (cpu:0): name one kind'
    """
    if not isinstance(names, list | tuple):
        return f"slots must be a list of devices such as ['cuda:0'], got {names!r}"
    if not names:
        return "slots is an empty list: name devices such as 'cuda:0', or say 'auto' for all there are"
    wrong = [name for name in names if not isinstance(name, str) or not is_device_name(name)]
    if wrong:
        return f"slots lists devices as 'cuda:0', 'GPU-<uuid>', 'cpu:0' or 'NODE/gpu0', got {wrong[0]!r}"
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        return f"slots names {twice[0]} twice"
    kinds = {_kind(name): name for name in reversed(names)}
    if len(kinds) > 1:
        return f"slots mixes CUDA devices ({kinds['cuda']}) with virtual ones ({kinds['cpu']}): name one kind"
    return ""


def named_devices(names: Sequence[str], nodes: Sequence[NodeDevices]) -> tuple[Device, ...]:
    """Return the devices that some names mean, in their order.

    Parameters
    ----------
    names
        As the user gave them.
    nodes
        The nodes of the cluster, in their order.

    Raises
    ------
    ConfigError
        If a name means nothing, or the same as another one, or kinds are mixed; the message lists what there is.

    Examples
    --------
    >>> n0 = NodeDevices(node="n0", host="h", n_cpus=2)
    >>> [device.name for device in named_devices(["cpu:1"], [n0])]
    ['n0/cpu1']
    """
    if problem := devices_problem(names):
        raise ConfigError(problem)
    kind = _kind(names[0])
    if kind == "cuda" and not any(node.cuda for node in nodes):
        why = "; ".join(dict.fromkeys(node.why_no_cuda for node in nodes if node.why_no_cuda)) or "no node has one"
        raise ConfigError(f"there is no CUDA device here: {why}; without one, name virtual devices such as cpu:0")
    meant = {name: _meant(name, nodes) for name in names}
    if missing := [name for name, devices in meant.items() if not devices]:
        raise ConfigError(f"no device {', '.join(missing)}: this cluster has {_listed(kind, nodes)}")
    chosen: dict[str, tuple[str, Device]] = {}
    for name, devices in meant.items():
        fresh = [device for device in devices if device.key not in chosen]
        if not fresh:
            raise ConfigError(f"slots names one device twice: {name} is {chosen[devices[0].key][0]}")
        chosen.update((device.key, (name, device)) for device in fresh)
    every = tuple(device for _, device in chosen.values())
    if kind == "cpu":
        _check_cores(every, nodes)
    return every


def _kind(name: str) -> str:
    """Return ``cuda`` or ``cpu``; empty if a text names no device."""
    last = name.rpartition("/")[2]
    if _UUID.fullmatch(last):
        return "cuda"
    match = _INDEXED.fullmatch(last)
    if match is None or (":" not in last and "/" not in name):  # gpu0 is a slot's word, and slots have nodes
        return ""
    return "cuda" if match["cuda"] else "cpu"


def _meant(name: str, nodes: Sequence[NodeDevices]) -> list[Device]:
    """Return the devices of one name, each once."""
    where, _, last = name.rpartition("/")
    devices, hosts = dict[str, Device](), set[str]()
    for node in nodes:
        if where not in {"", node.node}:
            continue
        for device in _of_node(last, node):
            if where or device.seen.startswith("cuda:") or node.host not in hosts:
                devices.setdefault(device.key, device)
        hosts.add(node.host)
    return list(devices.values())


def _of_node(last: str, node: NodeDevices) -> Iterator[Device]:
    """Yield the devices of a node that the last part of a name means."""
    indexed = _INDEXED.fullmatch(last)
    if indexed is not None and indexed["cpu"]:
        if int(indexed["cpu"]) < node.n_cpus:
            k = int(indexed["cpu"])
            yield Device(node=node.node, name=f"{node.node}/cpu{k}", seen=f"cpu:{k}")
        return
    for index, uuid in node.cuda:
        if uuid.lower() == last.lower() if indexed is None else index == int(indexed["cuda"]):
            yield Device(node=node.node, name=f"{node.node}/gpu{index}", seen=f"cuda:{uuid}")


def _listed(kind: str, nodes: Sequence[NodeDevices]) -> str:
    """Return what there is, in words: by torch's names on one node, else by those of slots."""
    if kind == "cuda":
        many = len({node.node for node in nodes if node.cuda}) > 1
        there = [f"{node.node}/gpu{k}" if many else f"cuda:{k}" for node in nodes for k, _ in node.cuda]
        return ", ".join(there)
    parts = []
    for node in nodes:
        names = [f"{node.node}/cpu{k}" if len(nodes) > 1 else f"cpu:{k}" for k in range(node.n_cpus)]
        parts.append(", ".join(names) if len(names) <= _LISTED else f"{names[0]} to {names[-1]}")
    return ", ".join(parts)


def _check_cores(devices: Sequence[Device], nodes: Sequence[NodeDevices]) -> None:
    """Refuse more virtual devices than a machine has cores, which its workers share."""
    hosts = {node.node: node for node in nodes}
    for host, n in Counter(hosts[device.node].host for device in devices).items():
        n_cpus = next(node.n_cpus for node in nodes if node.host == host)
        if n > n_cpus:
            raise ConfigError(f"slots names {n} virtual devices of one machine that has {n_cpus} CPU cores")
