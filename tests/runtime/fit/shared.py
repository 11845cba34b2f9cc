"""A task of `fleet.fit` as its executors have it, and a plain loop to hold it against."""

import copy

import numpy as np
import torch

from drlnb.records.spec import FitWork
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.children.shares.packed import load_parameters, pack_parameters
from drlnb.runtime.children.shares.step import apply_gradients, compute_share
from drlnb.runtime.ipc.pickled_work import pack_work

__all__ = ["plain_steps", "shared_steps", "written"]


def written(folder, module, data, loss, optimizer=torch.optim.SGD, batch_size=512, kwargs=None, evaluate=None, **more):
    """Write a task's two files as `fleet.fit` does; return its spec."""
    kwargs = kwargs or {"lr": 0.1}
    others = {"loss": loss, "optimizer": optimizer, "kwargs": kwargs, "evaluate": evaluate}
    for name, content in zip(("program", "data"), pack_work(module, data, others), strict=True):
        (folder / name).write_bytes(content)
    files = {"program": str(folder / "program"), "data": str(folder / "data")}
    sizes = {"n_samples": len(data), "batch_size": batch_size, "total_timesteps": 1000}
    return FitWork(**{"name": "fit", **files, **sizes, "n_learners": 2, **more})


def plain_steps(module, data, loss, n_steps, optimizer=torch.optim.SGD, batch_size=512, kwargs=None, seed=0, clip=None):
    """Train a copy of a module by the loop of the documentation; return it."""
    module = copy.deepcopy(module)
    made = optimizer(module.parameters(), **(kwargs or {"lr": 0.1}))
    per_epoch = -(-len(data) // batch_size)
    for step in range(n_steps):
        epoch, number = divmod(step, per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(len(data))
        picked = order[number * batch_size : (number + 1) * batch_size].tolist()
        inputs, targets = torch.utils.data.default_collate([data[index] for index in picked])
        made.zero_grad()
        loss(module(inputs), targets).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        made.step()
    return module


def shared_steps(spec, shares, n_steps, chunk=0):
    """Make steps by as many members as there are shares, the first one the lead; return the lead's learner.

    `shares`: samples of each one.
    """
    members = [FitLearner(spec) for _ in shares]
    lead = members[0]
    lead.begin(1, n_steps)
    for step in range(n_steps):
        firsts = [sum(shares[:k]) for k in range(len(shares))]
        parts = [
            compute_share(member, step, first, n, chunk, lambda: True)
            for member, first, n in zip(members, firsts, shares, strict=True)
        ]
        apply_gradients(lead, step, [part.packed for part in parts], [part.denominator for part in parts])
        packed = pack_parameters(lead.module, lead.as_made)
        for member in members[1:]:
            load_parameters(member.module, packed)
    return lead
