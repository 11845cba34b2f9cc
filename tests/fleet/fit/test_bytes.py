"""What supervised work sends to a slot with each lease, in bytes: never its data set."""

import msgpack
import torch
from torch import nn
from torch.utils.data import TensorDataset

from drlnb.runtime.ipc.frames import FrameSocket, socket_pair
from drlnb.runtime.master.work import located
from tests.fleet.fit.work import learner
from tests.runtime.fit.test_fit_frames import Slot

#: 20 MB of inputs.
N_SAMPLES, WIDTH = 5000, 1000
#: Most bytes of a lease beside the training state: names, fences and the spec.
MOST = 4000


class Counted(Slot):
    """Counts what its executor is sent."""

    n_sent = 0

    def ask(self, op, payload=b"", **header):
        plain = {name: str(value) if name == "fence" else value for name, value in header.items()}
        self.n_sent += len(msgpack.packb(plain)) + len(payload)
        return super().ask(op, payload, **header)


def test_a_lease_carries_no_data(begin):
    """Neither the first one, nor those after the model was dropped, which bring the training state along."""
    dataset = TensorDataset(torch.zeros(N_SAMPLES, WIDTH), torch.zeros(N_SAMPLES, dtype=torch.long))
    module = nn.Linear(WIDTH, 2)
    task = begin(module, dataset, optimizer=torch.optim.SGD, batch_size=64)
    assert (begin.out / task.data).stat().st_size > 4 * N_SAMPLES * WIDTH
    ends = socket_pair()
    slot = Counted(FrameSocket(ends[1]))
    slot.spec = located(task, begin.out)
    slot.begin()
    assert 0 < slot.n_sent < MOST
    facts, first = learner(begin, task).state()
    buffer = first.tobytes()
    for number in (1, 2, 3):
        slot.n_sent = 0
        made, payload = slot.round(number, (facts, buffer))
        facts, buffer = made["state"], payload[made["event"]["n_bytes"] :]
        n_state = 0 if number == 1 else len(buffer)
        assert n_state < slot.n_sent < n_state + MOST
        slot.child.models.drop("r/reg")  # for want of memory
    assert len(buffer) < 30_000
    for end in ends:
        end.close()
