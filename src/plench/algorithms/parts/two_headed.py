"""A featurizer with two heads: a linear classifier and a projection onto the unit sphere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from plench.networks import Classifier, Featurizer


def normalise_rows(values: Tensor) -> Tensor:
    """Divide each row by its Euclidean length (by 1e-12 if it is shorter than that)."""
    return normalize(values, dim=-1, eps=1e-12)


class TwoHeadedNetwork(nn.Module):
    """Featurizer, classifier, and projection head (two linear layers with a ReLU, then unit rows).

    Each head can be asked for alone; what the other would have given is then not computed. Both answer in
    the precision of their parameters, also under autocast, because their outputs become state.
    """

    def __init__(self, input_shape: Sequence[int], num_classes: int, hparams: Mapping[str, Any]) -> None:
        super().__init__()
        self.featurizer = Featurizer(input_shape, hparams)
        width = self.featurizer.n_outputs
        self.classifier = Classifier(width, num_classes)
        self.projector = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, hparams["feat_dim"])
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, K) and unit rows (B, D) from one pass."""
        hidden = self.featurizer(x)
        return self._classify(hidden), self._project(hidden)

    def classify(self, x: Tensor) -> Tensor:
        """Return logits (B, K)."""
        return self._classify(self.featurizer(x))

    def project(self, x: Tensor) -> Tensor:
        """Return unit rows (B, D)."""
        return self._project(self.featurizer(x))

    def _classify(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.classifier(hidden)
        return logits.to(self.classifier.weight.dtype)

    def _project(self, hidden: Tensor) -> Tensor:
        return normalise_rows(self.projector(hidden).to(self.classifier.weight.dtype))
