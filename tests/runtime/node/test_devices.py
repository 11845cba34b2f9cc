"""How torch's devices are named, where a played torch has some."""

import pytest

from drlnb.runtime.node.devices import ask_torch

_TORCH = """
from types import SimpleNamespace
__version__ = "2.13.0"
version = SimpleNamespace(cuda="13.0")
device = SimpleNamespace(uuid="1a-2b", name={name!r}, total_memory=7)
cuda = SimpleNamespace(init=lambda: None, device_count=lambda: 1, get_device_properties=lambda index: device)
"""


@pytest.mark.parametrize(
    ("name", "uuid"), [("NVIDIA A100-SXM4-40GB", "GPU-1a-2b"), ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-1a-2b")]
)
def test_a_slice_of_a_device_has_a_name_that_cuda_knows(tmp_path, monkeypatch, name, uuid):
    """``CUDA_VISIBLE_DEVICES`` takes a slice by ``MIG-`` and its UUID, and finds none by ``GPU-``."""
    (tmp_path / "torch.py").write_text(_TORCH.format(name=name), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    (device,) = ask_torch(tmp_path / "log")["devices"]
    assert device == {"index": 0, "uuid": uuid, "name": name, "memory_bytes": 7}
