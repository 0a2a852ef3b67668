"""Plain transcriptions of the holistic algorithms: loops, full matrices, nothing of the package's parts.

Slow and close to the words of the specification, they stand beside the package's code in test_hard_reference.
Networks, random numbers and batches are given, so that both sides must agree to rounding in every update.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Dirichlet
from torch.nn.functional import one_hot

from plench.algorithms import Algorithm
from plench.batch import Batch


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return -(targets * logits.log_softmax(1)).sum(1)


def best_of(scores: Tensor, allowed: Tensor) -> Tensor:
    """The allowed label with the highest score, the lowest on ties."""
    rows = zip(scores.tolist(), allowed.tolist(), strict=True)
    best = [max((j for j, ok in enumerate(allow) if ok), key=row.__getitem__) for row, allow in rows]
    return torch.tensor(best)


def kl(targets: Tensor, logits: Tensor) -> Tensor:
    logs = torch.where(targets > 0, targets, 1.0).log()
    return (targets * (logs - logits.log_softmax(1))).sum(1).mean()


def contrast(q: Tensor, k: Tensor, queue: Tensor, weights: Tensor, tau: float = 0.07) -> Tensor:
    """Each anchor's −Σ_j w_ij log-prob_ij over [q; k; queue]; its own query is left out on both sides."""
    similarities = q @ torch.cat([q, k, queue]).T / tau
    shifted = similarities - similarities.amax(1, keepdim=True).detach()
    own = torch.zeros_like(shifted, dtype=torch.bool)
    own[:, : len(q)].fill_diagonal_(True)
    total = (shifted.exp() * ~own).sum(1, keepdim=True) + 1e-12
    return -(weights * ~own * (shifted - total.log())).sum(1)


def equal_weights(positives: Tensor) -> Tensor:
    """Weights 1/|P_i|, the anchor's own query aside."""
    positives = positives.clone()
    positives[:, : len(positives)].fill_diagonal_(False)
    return positives / positives.sum(1, keepdim=True)


def instance_contrast(q: Tensor, k: Tensor, queue: Tensor, tau: float = 0.07) -> Tensor:
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / tau
    return (logits.logsumexp(1) - logits[:, 0]).mean()


class Reference:
    """One run: the networks and the candidates of an algorithm, its step counter, its state by the paper."""

    def __init__(self, algorithm: Algorithm, candidates: Tensor) -> None:
        self.hparams: Mapping[str, Any] = algorithm.hparams
        self.network: Any = copy.deepcopy(algorithm.network)
        self.optimizer = self.adam(self.network)
        self.candidates = candidates
        self.n = len(candidates)
        self.confidence = candidates / candidates.sum(1, keepdim=True)
        self.t = 0
        self.prepare(algorithm)

    def prepare(self, algorithm: Any) -> None:
        """Take over what else the algorithm starts with."""

    def adam(self, *networks: nn.Module) -> torch.optim.Optimizer:
        parameters = [parameter for network in networks for parameter in network.parameters()]
        return torch.optim.Adam(parameters, lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"])

    def update(self, batch: Batch) -> float:
        loss = self.step(batch)
        self.t += 1
        return float(loss.detach())

    def step(self, batch: Batch) -> Tensor:
        raise NotImplementedError

    def descend(self, loss: Tensor, optimizer: torch.optim.Optimizer | None = None) -> Tensor:
        optimizer = optimizer or self.optimizer
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def epoch(self, step: int) -> int:
        return step * self.hparams["batch_size"] // self.n

    def at_boundary(self) -> bool:
        return self.t >= 1 and self.epoch(self.t) != self.epoch(self.t - 1)

    def state(self) -> dict[str, Tensor]:
        """What the algorithm must have too, by the name of its attribute."""
        return {"confidence": self.confidence}


class Able(Reference):
    def step(self, batch: Batch) -> Tensor:
        size, tau = len(batch.index), self.hparams["temperature"]
        logits, f = self.network(torch.cat([batch.weak, batch.strong]))
        logits = logits[:size]
        predicted = best_of(logits, batch.candidates)
        confidence = self.confidence[batch.index]
        weights = torch.zeros(size, size)
        for i in range(size):
            for k in range(batch.candidates.shape[1]):
                if batch.candidates[i, k] and (predicted == k).any():
                    group = (predicted == k).double()
                    weights[i] += confidence[i, k] * group / group.sum()
        tiled = weights.repeat(2, 2).fill_diagonal_(0)
        similarities = f @ f.T / tau
        others = ~torch.eye(2 * size, dtype=torch.bool)
        log_probs = similarities - (similarities.exp() * others).sum(1, keepdim=True).log()
        contrastive = tau / 0.07 * -(tiled * log_probs).sum() / (2 * size)
        loss = cross_entropy(logits, confidence).mean() + self.hparams["loss_weight"] * contrastive
        self.descend(loss)
        kept = logits.detach().softmax(1) * batch.candidates
        self.confidence[batch.index] = kept / kept.sum(1, keepdim=True)
        return loss


class Crdpll(Reference):
    def step(self, batch: Batch) -> Tensor:
        logits = [self.network(batch.weak), self.network(batch.strong)]
        confidence = self.confidence[batch.index]
        consistency = sum(kl(confidence, z) for z in logits)
        outside = ~batch.candidates
        push = -(outside * (1.0000001 - logits[0].softmax(1)).log()).sum(1).mean()
        loss = self.descend(min(2 * self.t / self.hparams["max_steps"], 1) * consistency + push)
        agreed = (logits[0].softmax(1) * logits[1].softmax(1)).sqrt().detach() * batch.candidates
        self.confidence[batch.index] = agreed / agreed.sum(1, keepdim=True)
        return loss


class Dirk(Reference):
    def prepare(self, algorithm: Any) -> None:
        self.teacher = copy.deepcopy(algorithm.teacher)
        self.queue = {
            name: algorithm.queue[name].clone() for name in ("features", "distributions", "candidates")
        }
        self.position = 0

    def rectify(self, logits: Tensor, candidates: Tensor) -> Tensor:
        p = logits.softmax(1)
        rows = []
        for row, inside in zip(p, candidates, strict=True):
            c_in = row * inside / row[inside].sum()
            if inside.all():
                rows.append(c_in)
                continue
            c_out = row * ~inside / row[~inside].sum()
            upper, lower = c_out.max(), c_in[inside].min()
            share = upper / (upper + row[inside].sum() * lower)
            rows.append(share * c_in + (1 - share) * c_out)
        return torch.stack(rows)

    def step(self, batch: Batch) -> Tensor:
        h, size = self.hparams, len(batch.index)
        with torch.no_grad():
            k, z = self.teacher(batch.weak)[1], self.teacher(batch.distill)[0]
            r = self.rectify(z, batch.candidates)
        q, z = self.network(batch.strong)[1], self.network(batch.distill)[0]
        queue = self.queue["features"].clone()
        if self.t < h["prot_start"]:
            contrastive = instance_contrast(q, k, queue, h["feat_temperature"])
        else:
            own = batch.candidates.double()
            sets = torch.cat([own, own, self.queue["candidates"]])
            distributions = torch.cat([r, r, self.queue["distributions"]])
            weights = torch.zeros(size, len(sets))
            for i in range(size):
                positives = [
                    j
                    for j in range(len(sets))
                    if j != i and own[i] @ sets[j] > 0 and r[i].argmax() == distributions[j].argmax()
                ]
                cosines = torch.stack([torch.cosine_similarity(r[i], distributions[j], 0) for j in positives])
                weights[i, positives] = (cosines / h["dist_temperature"]).softmax(0)
            losses = contrast(q, k, queue, weights, h["feat_temperature"])
            contrastive = h["feat_temperature"] / 0.07 * losses.mean()
        for i in range(size):
            slot = (self.position + i) % len(queue)
            self.queue["features"][slot] = k[i]
            self.queue["distributions"][slot] = r[i]
            self.queue["candidates"][slot] = batch.candidates[i].double()
        self.position = (self.position + size) % len(queue)
        loss = self.descend(cross_entropy(z, r).mean() + h["weight"] * contrastive)
        with torch.no_grad():
            for mean, new in zip(self.teacher.parameters(), self.network.parameters(), strict=True):
                mean.copy_(h["momentum"] * mean + (1 - h["momentum"]) * new)
        return loss

    def state(self) -> dict[str, Tensor]:
        return {f"queue.{name}": values for name, values in self.queue.items()}


class Valen(Reference):
    def prepare(self, algorithm: Any) -> None:
        h = self.hparams
        self.decoder = copy.deepcopy(algorithm.decoder)
        self.inputs = algorithm.inputs
        self.sampled = self.confidence.clone()
        self.warm = torch.optim.SGD(
            self.network.parameters(), lr=h["lr"], momentum=0.9, weight_decay=h["weight_decay"]
        )

    def begin_main_phase(self) -> None:
        features = self.network[0](self.inputs.original(0, self.n)).detach()
        distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
        near = distances.fill_diagonal_(torch.inf).argsort(dim=1, stable=True)[:, : self.hparams["knn"]]
        adjacency = torch.eye(self.n).scatter_(1, near, 1.0)
        self.graph = adjacency / adjacency.sum(1, keepdim=True)
        self.encoder = copy.deepcopy(self.network)
        self.sampled = self.confidence.clone()
        self.optimizer = self.adam(self.network, self.encoder, self.decoder)

    def step(self, batch: Batch) -> Tensor:
        h, index, inside, x = self.hparams, batch.index, batch.candidates, batch.weak
        if self.t == h["warm_up"]:
            self.begin_main_phase()
        o = self.confidence[index]
        p = self.network(x).softmax(1)
        if self.t < h["warm_up"]:
            loss = self.descend(-(o * (p + 1e-12).log()).sum(1).mean(), self.warm)
        else:
            z = self.encoder(x)
            mass = z.softmax(1) * inside
            d = Dirichlet(mass / mass.sum(1, keepdim=True).detach() + 0.01).rsample()
            block = self.graph[index][:, index]
            rec = 0.01 * (self.decoder(d) - x).square().mean()
            rec = rec + 0.01 * ((1 + d.exp()).log() - inside * d).mean()
            rec = rec + ((d @ d.T).sigmoid().softmax(1) - block).square().mean()
            a = (z / 4).exp().clamp(0.01, 30)
            divergence = torch.distributions.kl_divergence(Dirichlet(a), Dirichlet(torch.ones_like(a))).mean()
            enc = -(o * (z.softmax(1) + 1e-12).log()).sum(1).mean()
            net = -(self.sampled[index] * (p + 1e-12).log()).sum(1).mean()
            loss = h["alpha"] * rec + h["beta"] * divergence + h["gamma"] * enc + h["theta"] * net
            self.descend(loss)
            kept = d.detach() * inside
            new = h["correct"] * kept / kept.sum(1, keepdim=True) + (1 - h["correct"]) * o
            self.sampled[index] = new
        kept = (p.detach() + 1e-12) * inside
        self.confidence[index] = kept / kept.sum(1, keepdim=True)
        return loss

    def state(self) -> dict[str, Tensor]:
        return {"targets": self.confidence, "sampled_targets": self.sampled}


class Pico(Reference):
    def prepare(self, algorithm: Any) -> None:
        self.key = copy.deepcopy(algorithm.key_network)
        self.queue = algorithm.queue["features"].clone()
        self.labels = algorithm.queue["labels"].clone()
        self.flags = torch.zeros(len(self.queue), dtype=torch.bool)
        self.position = 0
        self.prototypes = algorithm.prototypes.clone()
        self.phi = 0.99
        self.distances = torch.zeros(self.n)
        self.reliable = torch.ones(self.n, dtype=torch.bool)
        self.importance = 0.0
        self.margins: list[float] = []

    def update(self, batch: Batch) -> float:
        step = self.t
        loss = super().update(batch)
        first, last = (float(end) for end in self.hparams["conf_ema_range"].split(","))
        self.phi = first + step / self.hparams["max_steps"] * (last - first)
        return loss

    def move_prototypes(self, q: Tensor, labels: Tensor, used: Tensor) -> None:
        gamma = self.hparams["proto_m"]
        for i in range(len(q)):
            if used[i]:
                old = self.prototypes[labels[i]]
                self.prototypes[labels[i]] = gamma * old + (1 - gamma) * q[i].detach()
        self.prototypes /= self.prototypes.norm(dim=1, keepdim=True).clamp(min=1e-12)

    def make_keys(self, x: Tensor) -> Tensor:
        m = self.hparams["moco_m"]
        with torch.no_grad():
            for mean, new in zip(self.key.parameters(), self.network.parameters(), strict=True):
                mean.copy_(m * mean + (1 - m) * new)
            k: Tensor = self.key(x)[1]
            return k

    def enqueue(self, k: Tensor, labels: Tensor, flags: Tensor) -> None:
        for i in range(len(k)):
            slot = (self.position + i) % len(self.queue)
            self.queue[slot], self.labels[slot], self.flags[slot] = k[i], labels[i], flags[i]
        self.position = (self.position + len(k)) % len(self.queue)

    def move_confidence(self, index: Tensor, targets: Tensor) -> None:
        self.confidence[index] = self.phi * self.confidence[index] + (1 - self.phi) * targets

    def step(self, batch: Batch) -> Tensor:
        h, everything = self.hparams, torch.ones(len(batch.index), dtype=torch.bool)
        z, q = self.network(batch.weak)
        labels = best_of(z, batch.candidates)
        nearest = best_of(q.detach() @ self.prototypes.T, batch.candidates)
        self.move_prototypes(q, labels, everything)
        k = self.make_keys(batch.strong)
        if self.t < h["prot_start"]:
            contrastive = instance_contrast(q, k, self.queue.clone())
        else:
            self.move_confidence(batch.index, one_hot(nearest, z.shape[1]))
            positives = labels[:, None] == torch.cat([labels, labels, self.labels])
            contrastive = contrast(q, k, self.queue.clone(), equal_weights(positives)).mean()
        self.enqueue(k, labels, everything)
        classification = cross_entropy(z, self.confidence[batch.index]).mean()
        return self.descend(classification + h["loss_weight"] * contrastive)

    def state(self) -> dict[str, Tensor]:
        queue = {"queue.features": self.queue, "queue.labels": self.labels}
        return {"confidence": self.confidence, "prototypes": self.prototypes, **queue}
