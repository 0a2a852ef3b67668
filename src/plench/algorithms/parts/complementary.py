"""What losses on complementary labels share: a label outside the candidate set is a complementary label.

A pair is an example with one of its complementary labels. Tensors are (…, B, K); a leading axis stacks runs.
"""

from __future__ import annotations

from torch import Tensor


def mean_over_pairs(losses: Tensor, candidates: Tensor) -> Tensor:
    """Return the mean of the losses (…, B, K) over the pairs, and 0 where there is no pair.

    Every loss must be finite, those of candidates too: their gradient is multiplied by 0.
    """
    pairs = (~candidates).to(losses.dtype)
    return (losses * pairs).sum((-2, -1)) / pairs.sum((-2, -1)).clamp(min=1)
