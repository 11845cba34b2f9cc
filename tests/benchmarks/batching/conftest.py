"""Small networks are trained on one thread: more of them wait for each other."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """As before after the test."""
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)
