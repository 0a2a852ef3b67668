"""Training counts denormal numbers as 0, and leaves the process as it was."""

import pytest
import torch

from plench.training.environment import flush_denormals

TINY = 1e-40


def is_flushed() -> bool:
    return float(torch.tensor(TINY) * 1) == 0


def test_denormals_are_flushed_inside_only() -> None:
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor does not flush denormal numbers")
    with flush_denormals():
        assert is_flushed()
        with flush_denormals():
            assert is_flushed()
        assert is_flushed()
    assert not is_flushed()
    with pytest.raises(ValueError, match="stop"), flush_denormals():
        raise ValueError("stop")
    assert not is_flushed()
