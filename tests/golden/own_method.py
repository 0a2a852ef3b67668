"""Algorithms given by path: one that learns, one that diverges, one that fails."""

import torch

from plench.algorithms import LossAlgorithm, register


@register("Mean")
class Mean(LossAlgorithm):
    """Cross entropy averaged over the candidates."""

    def loss(self, logits, batch):
        weights = batch.candidates / batch.candidates.sum(-1, keepdim=True)
        return -(weights * logits.log_softmax(-1)).sum(-1).mean()


@register("Diverging")
class Diverging(Mean):
    """The loss is not a number from the fifth update on."""

    def setup(self, candidates):
        self.register_buffer("made", torch.zeros(()))

    def loss(self, logits, batch):
        self.made += 1
        return super().loss(logits, batch) * (1 if self.made < 5 else float("nan"))


@register("Failing")
class Failing(Diverging):
    """The fifth update raises an error."""

    def loss(self, logits, batch):
        if self.made == 4:
            raise ArithmeticError("the fifth update fails")
        return super().loss(logits, batch)
