"""A ring queue of past batches: the newest entries overwrite the oldest."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class RingQueue(nn.Module):
    """Named columns of Q slots each, with one writing position for all of them.

    The columns given are the content of the empty queue; the caller makes them such that an empty slot is
    never taken for a real entry. Q need not be a multiple of the batch size.
    """

    position: Tensor

    def __init__(self, **columns: Tensor) -> None:
        super().__init__()
        self.length = len(next(iter(columns.values())))
        for name, slots in columns.items():
            self.register_buffer(name, slots)
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def __getitem__(self, column: str) -> Tensor:
        return self.get_buffer(column)

    @torch.no_grad()
    def push(self, **entries: Tensor) -> None:
        """Write a batch's entries in batch order, wrapping around; of more than Q entries the last Q stay."""
        count = len(next(iter(entries.values())))
        skipped = max(0, count - self.length)
        order = torch.arange(skipped, count, device=self.position.device)
        slots = (self.position + order) % self.length
        for name, values in entries.items():
            self[name].index_copy_(0, slots, values[skipped:])
        self.position.add_(count).remainder_(self.length)


def draw_empty_features(length: int, width: int, axis: int) -> Tensor:
    """Draw the features of an empty queue (Q, D): standard normal, scaled to length 1 along `axis`.

    Axis 0 makes the columns unit, so that rows are short (about √(D/Q)) and weak negatives; axis 1 the rows.
    """
    return normalize(torch.randn(length, width), dim=axis)
