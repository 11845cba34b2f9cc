"""An executor child that learns, in the test's own process."""

from drlnb.records.ids import Fence
from drlnb.records.spec import RlWork
from drlnb.rl.collecting.collector import Collector, split_envs
from drlnb.runtime.children.device import Device
from drlnb.runtime.children.executor import ExecutorChild
from drlnb.runtime.ipc.frames import plain
from tests.fleet.conftest import small_task

FENCE = Fence(1, 5)


class Channel:
    """Takes what the child says by itself."""

    #: Nothing ever comes in by itself.
    waiting = False

    def __init__(self):
        self.said = []

    def send(self, header, *payloads):
        self.said.append(header)


class LearningChild:
    """An executor child, and a master that feeds it rounds of one small task."""

    def __init__(self, n_collectors=2, device=None, **given):
        self.spec = RlWork.from_plain(small_task(**given).to_plain() | {"n_collectors": n_collectors})
        self.child = ExecutorChild(Channel(), device or Device("cpu"))
        self.collectors = [Collector(self.spec, env_indices=share) for share in split_envs(4, n_collectors)]
        self.ask("initialise", spec=self.spec.to_plain())
        self.version = 1

    def ask(self, op, payload=b"", **header):
        fence = header.pop("fence", FENCE)
        if op == "finish":
            header.setdefault("collectors", list(range(len(self.collectors))))
        elif op == "restore":
            header.setdefault("collectors", [int(key.split("/")[1]) for key in header["keys"]])
        answer, payloads = self.child.answer({"op": op, "task": "r/a", "fence": fence, **header}, memoryview(payload))
        return answer, b"".join(bytes(memoryview(one).cast("B")) for one in payloads)

    @property
    def learner(self):
        return self.child.models["r/a"].learner

    def frames(self, number):
        """Collect a round; return the frames that stage it."""
        made, published = [], self.learner.published()
        for i, collector in enumerate(self.collectors):
            fragment = collector.collect(published, version=self.version, round=number, n_steps=16, n_timesteps=0)
            header, data = fragment.pack()
            row = {"round": number, "collector": i, "version": self.version, "after_timesteps": 64, "n_state": 0}
            made.append(({**row, "fragment": plain(header), "settings": {}}, bytes(data)))
        return made

    def stage(self, number, **more):
        for header, data in self.frames(number):
            assert self.ask("stage", data, **header, **more)[0]["op"] == "staged"

    def round(self, **more):
        self.stage(self.version, **more)
        answer, _ = self.ask("finish", round=self.version, **more)
        assert answer["op"] == "made"
        self.version += 1
