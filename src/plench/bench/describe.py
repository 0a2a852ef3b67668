"""On what a measurement was made."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from plench.training.environment import describe_environment, name_processor, source_commit


def describe_machine() -> dict[str, Any]:
    """Return hardware, versions and commit, as plain data."""
    return {
        "hardware": {
            "processor": name_processor(),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
        "versions": {
            name: str(value) for name, value in describe_environment(torch.device("cpu"), 1).items()
        },
        "commit": source_commit(),
    }
