"""Plain transcriptions of the noisy algorithms, as in reference.py."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Beta
from torch.nn.functional import one_hot

from plench.batch import Batch
from tests.algorithms.reference import (
    Pico,
    Reference,
    best_of,
    contrast,
    cross_entropy,
    equal_weights,
    instance_contrast,
    kl,
)


class Alim(Pico):
    def renew_importance(self) -> None:
        if not self.at_boundary():
            return
        if self.epoch(self.t) >= self.hparams["start_epoch"] and self.margins:
            rate, margins = self.hparams["noise_rate"], sorted(self.margins)
            rank = min(int(len(margins) * rate), len(margins) - 1)
            self.importance = 0.0 if rate == 0 else min(1.0, margins[rank])
        self.margins = []

    def step(self, batch: Batch) -> Tensor:
        h, inside, second = self.hparams, batch.candidates.double(), batch.second
        assert second is not None
        self.renew_importance()
        z, q = self.network(batch.weak)
        weights = inside + self.importance * (1 - inside)
        scores = (q.detach() @ self.prototypes.T / 0.07).softmax(1)
        labels = (z.detach().softmax(1) * weights).argmax(1)
        self.move_prototypes(q, labels, torch.ones_like(labels))
        k = self.make_keys(batch.strong)
        positives = labels[:, None] == torch.cat([labels, labels, self.labels])
        contrastive = contrast(q, k, self.queue.clone(), equal_weights(positives)).mean()
        self.enqueue(k, labels, torch.ones_like(labels))
        if self.t >= h["prot_start"]:
            weighted = scores * weights
            if h["normalisation"] == "onehot":
                self.move_confidence(batch.index, one_hot(weighted.argmax(1), z.shape[1]))
            else:
                self.move_confidence(batch.index, weighted / weighted.sum(1, keepdim=True))
        confidence, partners = self.confidence[batch.index], self.confidence[second.index]
        share = Beta(h["mixup_alpha"], h["mixup_alpha"]).sample()
        share = torch.maximum(share, 1 - share)
        mixed = self.network(share * batch.weak + (1 - share) * second.weak)[0]
        mixup = cross_entropy(mixed, share * confidence + (1 - share) * partners).mean()
        loss = cross_entropy(z, confidence).mean() + h["loss_weight"] * contrastive
        self.descend(loss + h["loss_weight_mixup"] * mixup)
        best, other = (scores * inside).amax(1), (scores * (1 - inside)).amax(1)
        self.margins += (best / (1e-9 + other)).tolist()
        return loss + h["loss_weight_mixup"] * mixup

    def state(self) -> dict[str, Tensor]:
        return {**super().state(), "importance": torch.tensor(self.importance)}


class PicoPlus(Pico):
    def select(self) -> None:
        h = self.hparams
        first = max(h["prot_start"], math.ceil(self.n / h["batch_size"]))
        if self.t == first or (self.t > first and self.at_boundary()):
            order = sorted(range(self.n), key=lambda i: (float(self.distances[i]), i))
            self.reliable = torch.zeros(self.n, dtype=torch.bool)
            self.reliable[order[: int(self.n * h["pure_ratio"])]] = True

    def step(self, batch: Batch) -> Tensor:
        h, index, x = self.hparams, batch.index, batch.weak
        self.select()
        rho = self.reliable[index]
        z, q = self.network(x)
        inside = best_of(z, batch.candidates)
        labels = torch.where(rho, inside, z.argmax(1))
        cosines = q.detach() @ self.prototypes.T
        self.distances[index] = -cosines[torch.arange(len(index)), inside]
        self.move_prototypes(q, labels, rho)
        k = self.make_keys(batch.strong)
        if self.t < h["prot_start"]:
            moco = instance_contrast(q, k, self.queue.clone())
            loss = cross_entropy(z, self.confidence[index]).mean() + h["loss_weight"] * moco
        else:
            self.move_confidence(index, one_hot(best_of(cosines, batch.candidates), z.shape[1]))
            contrastive = self.contrast_both(q, k, labels, rho)
            c, guess = self.confidence[index], (cosines / h["temperature_guess"]).softmax(1)
            targets = torch.where(rho[:, None], c, guess)
            partners = torch.randperm(len(x))
            share = Beta(4.0, 4.0).sample()
            share = torch.maximum(share, 1 - share)
            mixed = self.network(share * x + (1 - share) * x[partners])[0]
            mixup = cross_entropy(mixed, share * targets + (1 - share) * targets[partners]).mean()
            certain = (cross_entropy(z, c) * rho).sum() / max(int(rho.sum()), 1)
            guessed = (cross_entropy(z, guess) * ~rho).sum() / max(int((~rho).sum()), 1)
            loss = mixup + h["cls_weight"] * certain + h["ur_weight"] * guessed + contrastive
        self.enqueue(k, labels, rho)
        return self.descend(loss)

    def contrast_both(self, q: Tensor, k: Tensor, labels: Tensor, rho: Tensor) -> Tensor:
        h, size, queue = self.hparams, len(q), self.queue.clone()
        same = labels[:, None] == torch.cat([labels, labels, self.labels])
        positives = same & rho[:, None] & torch.cat([rho, rho, self.flags])
        anchor_weights = torch.ones(size)
        if self.t >= h["knn_start"]:
            similarities = (q @ torch.cat([q, k, queue]).T).detach()
            for a in range(size):
                if not rho[a]:
                    count = min(h["chosen_neighbors"], similarities.shape[1])
                    positives[a] = False
                    positives[a, similarities[a].topk(count).indices] = True
            anchor_weights = torch.where(rho, h["loss_weight"], h["ur_weight"])
        positives[:, size : 2 * size].fill_diagonal_(True)
        certain = (anchor_weights * contrast(q, k, queue, equal_weights(positives))).mean()
        return certain + h["ur_weight"] * contrast(q, k, queue, equal_weights(same)).mean()

    def state(self) -> dict[str, Tensor]:
        flags = {"reliable": self.reliable, "distances": self.distances, "queue.reliable": self.flags}
        return {**super().state(), **flags}


class Fredis(Reference):
    def prepare(self, algorithm: Any) -> None:
        self.sets = self.candidates.clone()
        self.posterior = torch.full(self.sets.shape, 1 / self.sets.shape[1])
        self.visited = torch.zeros(self.n, dtype=torch.bool)
        self.theta, self.delta = self.hparams["theta"], self.hparams["delta"]

    def step(self, batch: Batch) -> Tensor:
        h, index = self.hparams, batch.index
        sets, targets = self.sets[index], self.confidence[index]
        views = [self.network(batch.view(name)) for name in ("weak", "strong", "distill")]
        push = sum(-(~sets * (1.0000001 - z.softmax(1)).log()).sum(1).mean() for z in views)
        loss = self.descend(h["lam"] * sum(kl(targets, z) for z in views) + h["alpha"] * push)
        product = torch.stack([z.detach().softmax(1) for z in views]).prod(0) ** (1 / 3) * sets
        self.confidence[index] = product / product.sum(1, keepdim=True)
        self.posterior[index] = views[0].detach().softmax(1)
        self.visited[index] = True
        interval = max(1, h["update_interval"] * self.n // h["batch_size"])
        if self.t > 0 and self.t % interval == 0:
            self.correct()
        return loss

    def correct(self) -> None:
        h, old = self.hparams, self.sets
        gaps = self.posterior.amax(1, keepdim=True) - self.posterior
        near = (gaps < self.theta) & self.visited[:, None]
        added = int((near & ~old).sum())
        if added > h["change_size"]:
            near, added = self.thin(near, h["change_size"]), h["change_size"]

        def count() -> int:
            return int(((gaps > self.delta) & old & self.visited[:, None]).sum())

        while count() < added * h["times"] and self.delta >= h["dec"]:
            self.delta -= h["dec"]
        far = (gaps > self.delta) & self.visited[:, None]
        if count() > h["change_size"] * h["times"]:
            far = self.thin(far, h["change_size"] * h["times"])
        new = (old | near) & ~far
        for i in range(self.n):
            if not new[i].any():
                new[i] = old[i]
            if self.visited[i]:
                kept = self.posterior[i] * new[i]
                self.confidence[i] = kept / kept.sum()
        changed = int((new != old).sum())
        if self.theta < 0.9 and self.delta > 0.1 and changed < h["change_size"]:
            self.theta, self.delta = self.theta + h["inc"], self.delta - h["dec"]
        self.sets = new

    def thin(self, entries: Tensor, count: int) -> Tensor:
        places = entries.flatten().nonzero().flatten()
        kept = torch.zeros_like(entries).flatten()
        kept[places[torch.randperm(len(places))[:count]]] = True
        return kept.view(entries.shape)

    def state(self) -> dict[str, Tensor]:
        thresholds = {"theta": torch.tensor(self.theta), "delta": torch.tensor(self.delta)}
        sets = {"candidates": self.sets, "targets": self.confidence, "posterior": self.posterior}
        return {**sets, **thresholds}
