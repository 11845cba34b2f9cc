"""A training state without its optimiser's part is a file of all else."""

import safetensors.torch
import torch

from drlnb.runtime.ipc.training_state import without_optimizer


def test_every_other_tensor_is_there_and_no_byte_more():
    """Of any type, empty ones and scalars, too; the optimiser's numbers are gone, as its groups are not."""
    others = {
        "module/a": torch.arange(6.0, dtype=torch.float64).reshape(2, 3),
        "module/optimizer/b": torch.tensor([1.5, -2.0, 3.0], dtype=torch.bfloat16),
        "buffer/c": torch.zeros(0),
        "random": torch.arange(5, dtype=torch.uint8),
        "group/0/lr": torch.tensor(0.25),
    }
    moments = {f"optimizer/{i}/exp_avg": torch.full((100 + i,), float(i)) for i in range(3)}
    facts = {"n_steps": 3, "numbers": {"0/step": 3}, "groups": [{"lr": 0.1}]}
    kept, state = without_optimizer(facts, safetensors.torch.save(others | moments))
    assert kept == {"n_steps": 3, "numbers": {}, "groups": [{"lr": 0.1}]}
    loaded = safetensors.torch.load(state)
    assert loaded.keys() == others.keys()
    for name, tensor in others.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
    assert len(state) < 48 + 6 + 5 + 4 + 600
    assert facts["numbers"], "what was given is as it was"
