"""What to check in the data: resolved labels, rows to relabel, annotators.

Evidence about a row comes from models that were not trained on it. `fit` stores out-of-fold probabilities of
its rows in the model file (`store_rows`), and what resolves these rows later uses them.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from plench.algorithms import AlgorithmEntry, find_algorithm
from plench.data import as_dataset
from plench.data.answers import COMBINE_RULES, Answers, combine_answers, count_votes
from plench.data.dataset import Dataset
from plench.data.roles import split_reference
from plench.data.sources import split_encoders
from plench.data.sources.exports import is_export
from plench.data.sources.tables import TableContent, make_table_card, read_table_files
from plench.data.tables import Table, is_table_file
from plench.errors import DataError, RunFailedError, UsageError
from plench.estimator.calibration import LEAST_LABELS, fit_temperature
from plench.estimator.folds import number_units, predict_out_of_fold
from plench.estimator.inputs import hide_truth
from plench.estimator.quality import Estimate, estimate_share, score_examples
from plench.estimator.search import TrainingData, attempt
from plench.estimator.verdict import estimate_difference
from plench.text import unknown_name
from plench.training.config import configure_refit
from plench.training.model import TrainedModel

MISSING = 0.5  # probability that the truth is outside a set, beyond which the set probably misses it
PRIOR_ANSWERS, PRIOR_ACCURACY = 10, 0.9  # made-up answers that keep accuracies from few answers sensible
TEMPERATURES = (0.1, 1000.0)  # the highest leaves nothing of what a useless model says
MAX_TEMPERATURE_ROWS = 5000  # drawn at random; more do not change a temperature
TIE = 0.1  # difference of the two best candidates' shares, below which they tie
SETTLED = 0.75  # share of the best candidate, from which the model settles a split of the annotators
LEAST_ANSWERS = 10  # of an annotator who is rated
TOO_FEW = "too few answers to tell"
MAX_STORED = 2**24  # probabilities in a model file
MAX_DOUBTS = 500  # rows to relabel in a model file
NAMES_SHOWN = 6
BINS, LEAST_OF_BIN = 10, 20  # of probabilities that are compared with how often predictions are candidates

Kind = Literal["misses", "may_miss", "tie", "split"]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Doubt:
    """A row to relabel and the reason in words; `score` orders the rows of one kind, the highest first.

    Kinds: the set `misses` the truth with probability above 0.5, or `may_miss` it, since the prediction is
    outside; two candidates `tie`; the annotators are `split` and the model does not settle it.
    """

    row: int
    kind: Kind
    score: float
    reason: str


@dataclass(frozen=True)
class AnnotatorRating:
    """How far an annotator agrees with predictions of models that were not trained on the items.

    `agreement` is the share of the answers that contain the prediction, and `chance` that share if the same
    answers were given to the same items in random order. `skill` is (agreement − chance)/(1 − chance),
    Cohen's kappa for answers that are sets: 0 for an annotator who always gives the same answer. It is None
    if answers and predictions do not vary. `low` and `high` are its 95 % interval for a known chance level.
    """

    annotator: str
    n_answers: int
    agreement: float
    chance: float
    skill: float | None
    low: float | None
    high: float | None
    confusions: tuple[str, ...]
    flag: str

    def __str__(self) -> str:
        skill = "none" if self.skill is None else f"{self.skill:.2f} ({self.low:.2f} to {self.high:.2f})"
        share = f"{self.agreement:.1%} of {self.n_answers} answers contain the prediction"
        flag = f"; {self.flag}" if self.flag else ""
        return f"{self.annotator}: skill {skill}; {share}, by chance {self.chance:.1%}{flag}"


@dataclass(frozen=True, eq=False)
class Resolution:
    """For each example: the resolved label, its probability among the candidates, and `outside`.

    `label` and `predicted` are numbers of classes; `predicted` is what the model says whatever the set.
    `outside` is the probability that the true label is not a candidate (`estimate_outside`).
    `candidates` and `answers` have the model's classes. `is_fair` (N,) says which rows were predicted by a
    model that was not trained on them.
    """

    probs: Reals
    candidates: Bools
    class_names: tuple[str, ...]
    answers: Answers | None
    is_fair: Bools
    label: NDArray[np.int64]
    probability: Reals
    predicted: NDArray[np.int64]
    outside: Reals

    @property
    def doubtful(self) -> Bools:
        """Which sets probably miss the true label."""
        inside = self.candidates[np.arange(len(self.label)), self.predicted]
        return (self.outside > MISSING) & ~inside


def resolve(
    probs: Reals,
    candidates: Bools,
    class_names: Sequence[str],
    answers: Answers | None = None,
    is_fair: Bools | None = None,
) -> Resolution:
    """Resolve candidate sets by probabilities (N, K)."""
    label, probability = resolve_candidates(probs, candidates)
    fair = np.ones(len(probs), np.bool_) if is_fair is None else is_fair
    outside = estimate_outside(probs, candidates, answers, fair)
    names = tuple(map(str, class_names))
    return Resolution(probs, candidates, names, answers, fair, label, probability, probs.argmax(1), outside)


def read_items(reference: str, data_dir: str | None = None, *, as_files: bool = False) -> Dataset:
    """Read examples with candidate sets: every row of a table (no test set), or another dataset.

    `as_files`: images are a column of files, for a model with an encoder.
    """
    content = read_own_table(reference)
    columns = content.features.columns if content is not None and content.features is not None else ()
    if content is None or (not as_files and any(column.kind == "image" for column in columns)):
        image_encoder = "files" if as_files else None
        return hide_truth(as_dataset(reference, data_dir, image_encoder=image_encoder))
    if content.is_generated:
        raise DataError(f"{reference} has neither candidates nor answers to resolve")
    assert content.features is not None
    card = replace(make_table_card(reference, "", content), class_names=content.class_names)
    sets, answers = content.candidates, content.answers
    return Dataset(content.features, sets, None, card, answers=answers, items=content.items)


def number_rows(reference: str, n_examples: int) -> list[int]:
    """Return the number of each example of a dataset among the rows that `read_items` gives, from 1."""
    content = read_own_table(reference)
    if content is None or content.split is None:
        return list(range(1, n_examples + 1))
    return [int(row) + 1 for row in np.flatnonzero(content.split != "test")]


def read_own_table(reference: str) -> TableContent | None:
    """Return the content of a table file with every row; None for any other dataset."""
    if not is_table_file(reference.partition("?")[0]) or is_export(reference):
        return None
    path, options = split_reference(split_encoders(reference)[0])
    return read_table_files(Path(path), options, keep_ids=True)[0]


def resolve_items(model: TrainedModel, items: Dataset) -> Resolution:
    """Resolve examples with a model, whose classes are met by their names.

    Rows that it was trained on are resolved by the out-of-fold probabilities in its file, if it has any. If
    the model does not say what it was trained on, all rows are taken as new.
    """
    known = [str(label) for label in model.classes]
    place = {name: number for number, name in enumerate(known)}
    columns = np.array([place.get(name, -1) for name in items.label_names])
    candidates = spread(items.candidates, columns, len(known))
    empty = np.flatnonzero(~candidates.any(1))
    if len(empty):
        raise DataError(
            f"example {empty[0] + 1} has no candidate that the model knows ({len(empty):,} such); its "
            "classes are " + ", ".join(known[:10])
        )
    probs = model.predict_proba(items.features)
    rows = model.notes.get("rows")
    fair = np.ones(len(probs), np.bool_)
    if rows is not None:
        at = find_stored(rows, items.features)
        fair = at < 0
        if "probs" in rows:
            stored = unpack(rows["probs"], np.float16).reshape(-1, len(known)).astype(np.float64)
            probs = np.where(fair[:, None], probs, stored[at])
            fair[:] = True
        elif len(rows["reserved"]):
            fair |= np.isin(at, rows["reserved"])
    answers = items.answers
    if answers is not None:  # an answer that names only classes which the model lacks agrees with nothing
        unknown = np.isin(columns, -1)
        n_unknown = int(unknown.any())
        sets = spread(answers.sets, columns, len(known))
        more = np.zeros((len(sets), n_unknown), np.bool_)
        more[:, :n_unknown] = answers.sets[:, unknown].any(1, keepdims=True)
        answers = replace(answers, sets=np.concatenate([sets, more], 1))
    return resolve(probs, candidates, known, answers, fair)


def review_fit(
    data: TrainingData,
    model: TrainedModel,
    reserved: Rows,
    seed: int = 0,
    entry: AlgorithmEntry | None = None,
    logits: Reals | None = None,
) -> Resolution:
    """Resolve the rows of a fit: reserved ones by the model, the others by models trained without them.

    `logits` (N, K) are those of the other models where `fit` has trained them; then none are trained here.
    Probabilities are at the temperature of the model, if it is calibrated.
    """
    dataset = data.dataset
    if logits is None:
        logits = np.zeros(dataset.candidates.shape)
        trained = np.setdiff1d(np.arange(dataset.n_examples), reserved)
        logits[trained] = predict_out_of_fold(data.take(trained), model, seed=seed, entry=entry)
        if len(reserved):
            logits[reserved] = model.predict_logits(dataset.features[reserved])
    probs = model.calibrate_logits(logits)
    return resolve(probs, dataset.candidates, dataset.label_names, dataset.answers)


def spread(sets: Bools, columns: NDArray[np.int64], n_classes: int) -> Bools:
    """Return sets in the order of the model's classes; classes that it lacks are left out."""
    found = np.zeros((len(sets), n_classes), np.bool_)
    kept = columns >= 0
    found[:, columns[kept]] = sets[:, kept]
    return found


def resolve_candidates(probs: Reals, candidates: NDArray[Any]) -> tuple[NDArray[np.int64], Reals]:
    """Return the most probable candidate of each example, and its share; candidates may have weights."""
    share = np.where(candidates > 0, probs * candidates, 0.0)
    total = share.sum(1, keepdims=True)
    even = candidates / candidates.sum(1, keepdims=True)  # where no candidate has any probability
    share = np.where(total > 0, share / np.where(total > 0, total, 1), even)
    labels = share.argmax(1)
    return labels, share[np.arange(len(share)), labels]


# What to relabel


def join_names(names: Sequence[str]) -> str:
    """Return the names of a set as text; those of a large set in short."""
    more = f"|… ({len(names)} classes)" if len(names) > NAMES_SHOWN else ""
    return "|".join(names[:NAMES_SHOWN]) + more


def estimate_outside(probs: Reals, candidates: Bools, answers: Answers | None, is_fair: Bools) -> Reals:
    """Return the probability that the true label of each row is outside its candidate set.

    The model's probabilities are the prior, and each answer is evidence: it contains the true label with the
    accuracy of its annotator, and its other labels are any labels with equal probability (the one-coin model
    of annotators). Where there are no answers, the set is the one answer to its row, and 1 − accuracy is the
    noise rate of the sets. Accuracies and a temperature of the probabilities maximise the likelihood of all
    answers to rows that the model was not trained on, so a model that explains no answers has a high
    temperature and speaks against few sets. docs/theory-probabilities.md has the formulas.
    """
    n, n_classes = candidates.shape
    item, annotator, sets = np.arange(n), np.zeros(n, np.int64), candidates
    if answers is not None:  # a row without an answer that says anything has its set as the only one
        told = np.bincount(answers.item, answers.sets[:, :n_classes].any(1), n) > 0
        silent = np.flatnonzero(~told)
        item = np.append(answers.item, silent)
        annotator = np.append(answers.annotator, np.full(len(silent), answers.annotator.max(initial=0) + 1))
        sets = np.concatenate([answers.sets[:, :n_classes], candidates[silent]])
    says = sets.any(1) & ~sets.all(1)  # not "unsure", nor "all"
    item, sets = item[says], sets[says]
    annotator = np.unique(annotator[says], return_inverse=True)[1]
    size = sets.sum(1)
    of_item = sparse.csr_array((np.ones(len(item)), (item, np.arange(len(item)))), shape=(n, len(item)))
    used = is_fair[item]
    counts = np.bincount(annotator[used], minlength=annotator.max(initial=-1) + 1)
    logs = np.log(np.maximum(probs, 1e-30))
    rows = np.random.default_rng(0).permutation(np.flatnonzero(is_fair))[:MAX_TEMPERATURE_ROWS]
    accuracy, temperature = np.full(len(counts), PRIOR_ACCURACY), 1.0
    for _ in range(100):
        odds = accuracy / (1 - accuracy)
        weights = np.log(odds[annotator] * (n_classes - size) / size)
        evidence = of_item @ (sets * weights[:, None])
        evidence -= evidence.max(1, keepdims=True, initial=0.0)
        before = np.append(accuracy, np.log(temperature))
        if len(rows) >= LEAST_LABELS:
            temperature = fit_temperature(logs[rows], np.exp(evidence[rows]), TEMPERATURES)[0]
        posterior = softmax(logs / temperature + evidence, axis=1)
        right = (posterior[item] * sets).sum(1)
        pooled = (right[used].sum() + PRIOR_ANSWERS * PRIOR_ACCURACY) / (counts.sum() + PRIOR_ANSWERS)
        own = np.bincount(annotator[used], right[used], len(counts))
        accuracy = np.clip((own + PRIOR_ANSWERS * pooled) / (counts + PRIOR_ANSWERS), 1e-6, 1 - 1e-6)
        if np.abs(np.append(accuracy, np.log(temperature)) - before).max() < 1e-4:
            break
    return np.asarray(np.where(candidates, 0, posterior).sum(1).clip(0.0, 1.0))


def find_doubts(found: Resolution) -> list[Doubt]:
    """Return the rows to relabel, the most urgent first; each row has one reason, the first that applies.

    First the sets that probably miss the truth. The other three kinds follow in turn, one row of each, so
    that a kind with many rows does not hide the others. Within a kind the highest score comes first: the
    probability that the set misses the truth, the closeness of the tie, the doubt that the model leaves.
    Rows that the model was trained on are left out: it agrees with their sets whatever these are.
    """
    names, shares = found.class_names, np.where(found.candidates, found.probs, 0)
    shares = shares / np.maximum(shares.sum(1, keepdims=True), 1e-12)
    votes = None if found.answers is None else count_votes(found.answers)[:, : len(names)]
    doubts: dict[Kind, list[Doubt]] = {"misses": [], "may_miss": [], "tie": [], "split": []}
    for row in np.flatnonzero(found.is_fair).tolist():
        own = np.flatnonzero(found.candidates[row])
        split = "" if votes is None else describe_split(votes[row], names)
        best = own[np.argsort(-shares[row, own], kind="stable")]
        gap = shares[row, best[0]] - shares[row, best[1]] if len(own) > 1 else 1.0
        says = f"model says {names[found.predicted[row]]} {found.probs[row].max():.2f}"
        if not found.candidates[row, found.predicted[row]]:
            score = float(found.outside[row])
            kind: Kind = "misses" if found.doubtful[row] else "may_miss"
            reason = "set probably misses the truth"
            if kind == "may_miss":
                chance = "below 0.01" if score < 0.005 else f"{score:.2f}"
                reason = f"set may miss the truth (probability {chance})"
            reason += f": {says}, candidates {join_names([names[k] for k in own.tolist()])}"
        elif gap < TIE:
            kind, score = "tie", float(1 - gap)
            tied = ", ".join(f"{names[k]} {shares[row, k]:.2f}" for k in best[:2].tolist())
            reason = f"two classes tie: {tied} of the candidates' probability"
            reason += f"; {split}" if split else ""
        elif split and shares[row, best[0]] < SETTLED:
            kind, score, reason = "split", float(1 - shares[row, best[0]]), f"{split}; {says}"
        else:
            continue
        doubts[kind].append(Doubt(row, kind, score, reason))
    first, *others = (sorted(kind, key=lambda doubt: -doubt.score) for kind in doubts.values())
    return [*first, *(each for turn in zip_longest(*others) for each in turn if each is not None)]


def describe_split(votes: NDArray[np.int64], names: Sequence[str]) -> str:
    """Return how the annotators of an item are split, if several classes have the most votes."""
    most = np.flatnonzero((votes == votes.max()) & (votes > 0))
    if not 2 <= len(most) < len(names):
        return ""
    counts = "–".join([str(votes.max())] * len(most))
    return f"annotators split {counts} ({join_names([names[k] for k in most.tolist()])})"


# Whom to trust


def rate_annotators(found: Resolution) -> list[AnnotatorRating]:
    """Rate the annotators: those who agree least with the predictions first, then those with few answers."""
    answers = found.answers
    if answers is None or answers.anonymous:
        return []
    sure = answers.sets.any(1) & found.is_fair[answers.item]  # "unsure" says nothing about the annotator
    ratings = []
    for number in np.unique(answers.annotator[sure]).tolist():
        own = sure & (answers.annotator == number)
        name = answers.annotator_names[number] if answers.annotator_names else str(number)
        sets, predicted = answers.sets[own], found.predicted[answers.item[own]]
        hits = sets[np.arange(len(sets)), predicted]
        given = np.bincount(predicted, minlength=sets.shape[1]) / len(sets)
        chance = min(1.0, float(sets.mean(0) @ given))
        share = estimate_share(int(hits.sum()), len(hits))
        skill, low, high = (
            (value - chance) / (1 - chance) if chance < 1 - 1e-9 else None
            for value in (share.value, share.low, share.high)
        )
        confused = Counter(
            (found.class_names[label], describe_answer(answer, found.class_names))
            for label, answer in zip(predicted[~hits], sets[~hits], strict=True)
        )
        confusions = tuple(
            f"{answer} where the model says {label} ({n})"
            for (label, answer), n in confused.most_common(3)
            if n > 1
        )
        ratings.append(
            AnnotatorRating(name, len(hits), share.value, chance, skill, low, high, confusions, "")
        )
    rated = [each.skill for each in ratings if each.skill is not None and each.n_answers >= LEAST_ANSWERS]
    middle = float(np.median(rated)) if rated else 0.0
    for place, each in enumerate(ratings):
        flag = ""
        if each.n_answers < LEAST_ANSWERS:
            flag = TOO_FEW
        elif each.low is None or each.high is None:
            flag = "answers do not vary"
        elif each.high < 0:
            flag = "worse than chance"
        elif each.low <= 0:
            flag = "not better than chance"
        elif each.high < middle:
            flag = "agrees less than most"
        ratings[place] = replace(each, flag=flag)
    return sorted(
        ratings, key=lambda each: (each.skill is None or each.n_answers < LEAST_ANSWERS, each.skill or 0.0)
    )


def describe_answer(answer: Bools, names: Sequence[str]) -> str:
    """Return an answer as it might have been written."""
    labels = np.flatnonzero(answer[: len(names)])
    if len(labels) == len(names) - 1 > 1:
        return f"not {names[int(np.flatnonzero(~answer)[0])]}"
    return join_names([names[k] for k in labels.tolist()]) or "a class that the model does not know"


def drop_annotators(data: Dataset, names: Sequence[str]) -> tuple[Dataset, Rows]:
    """Return the data without the answers of some annotators, and the rows that are left.

    Candidate sets are made of the other answers by the rule that made them. Rows without another answer are
    left out.
    """
    answers = data.answers
    if answers is None or answers.anonymous:
        raise UsageError(f"{data.card.name} has no annotators' answers, so no annotator can be dropped")
    numbers = range(int(answers.annotator.max()) + 1)
    known = list(answers.annotator_names or map(str, numbers))
    for name in names:
        if name not in known:
            raise unknown_name(name, known, "annotator")
    kept = ~np.isin(answers.annotator, [known.index(name) for name in names])
    most = int(count_votes(answers).max())
    rules = [*((rule, 1) for rule in COMBINE_RULES), *(("votes", votes) for votes in range(2, most + 1))]
    used = [rule for rule in rules if np.array_equal(combine_answers(answers, *rule), data.candidates)]
    if not used:
        raise DataError(
            f"the candidate sets of {data.card.name} are not made of its answers alone, so no annotator can "
            "be dropped"
        )
    left = answers.take(kept, answers.item[kept], answers.n_items)
    rows = np.flatnonzero(np.bincount(left.item[left.sets.any(1)], minlength=data.n_examples))
    if len(rows) == 0:
        raise UsageError(f"without {', '.join(names)} no row has an answer")
    reduced = replace(data, answers=left, candidates=combine_answers(left, *used[0]))
    return reduced.take(rows), rows


def compare_dropped(
    model: TrainedModel,
    whole: Dataset,
    reduced: Dataset,
    rows: Rows,
    reserved: Rows,
    criterion: str,
    entry: AlgorithmEntry | None = None,
) -> tuple[Estimate, Estimate, Estimate]:
    """Compare a model of `reduced` data with one of the same configuration and all annotators' answers.

    `rows` are those of `reduced` in `whole`, and `reserved` those in `reduced` that the model was not trained
    on; the other model is not trained on any row of their groups and items. `entry` is the method, if it is
    not one that `find_algorithm` finds. Returns the criterion without the annotators, with them, and the
    difference, all on the reserved rows with the candidate sets that the other annotators gave.
    """
    unit = number_units(whole)
    config, _ = configure_refit(model.run, model.updates - 1, whole)
    others = TrainingData(whole.take(np.flatnonzero(~np.isin(unit, unit[rows[reserved]])))).whole()
    made = attempt(config, others, entry or find_algorithm(config.algorithm))
    if made.model is None:
        raise RunFailedError(f"{config.algorithm} with all annotators: {made.message or made.status}")
    sets, features = reduced.candidates[reserved], reduced.features[reserved]
    own, theirs = (
        score_examples(each.predict_logits(features), sets)[criterion] for each in (model, made.model)
    )
    unit = unit[rows[reserved]]
    shares = [estimate_difference(values, unit) for values in (own, theirs)]
    without, with_them = (replace(each, low=max(0.0, each.low), high=min(1.0, each.high)) for each in shares)
    return without, with_them, estimate_difference(own - theirs, unit)


# What a model file keeps of the rows that it was made of


def digest_rows(features: NDArray[Any] | Table) -> NDArray[np.uint64]:
    """Return a hash of each row, by which it is recognised in another file and in another order."""
    if isinstance(features, Table):
        ordered = sorted(features.columns, key=lambda column: column.name)
        texts = zip(*(column.texts() for column in ordered), strict=True)
        parts = ["\x1f".join(cells).encode() for cells in texts]
    else:
        parts = [np.ascontiguousarray(row).tobytes() for row in features]
    hashes = (hashlib.blake2b(part, digest_size=8).digest() for part in parts)
    return np.frombuffer(b"".join(hashes), "<u8")


def name_rows(items: Sequence[str] | None, n: int, numbers: Sequence[int] | None = None) -> list[str]:
    """Return the ids of rows: the names of their items if all are different, else their numbers from 1."""
    if items is not None and "" not in items and len(set(items)) == n:
        return list(items)
    return [str(number) for number in numbers or range(1, n + 1)]


def store_rows(
    data: Dataset, model: TrainedModel, reserved: Rows, found: Resolution | None, numbers: Sequence[int]
) -> dict[str, Any]:
    """Return what a model file keeps of its rows, as plain values.

    `digests` recognise them; `probs` are out-of-fold probabilities where they were `found`, unless too
    many; `reserved` are the rows that were kept apart, `audit` their names, candidates and logits.
    """
    names = name_rows(data.items, data.n_examples, numbers)
    logits = model.predict_logits(data.features[reserved]) if len(reserved) else np.empty(0)
    kept: dict[str, Any] = {
        "digests": pack(digest_rows(data.features)),
        "reserved": reserved.tolist(),
        "audit": {
            "ids": [names[row] for row in reserved],
            "candidates": [np.flatnonzero(data.candidates[row]).tolist() for row in reserved],
            "logits": pack(logits.astype(np.float32)),
        },
    }
    if found is not None and found.probs.size <= MAX_STORED:
        kept["probs"] = pack(found.probs.astype(np.float16))
    return kept


def find_stored(rows: Mapping[str, Any], features: NDArray[Any] | Table) -> Rows:
    """Return for each row of features its place among a model's rows, −1 for a new one.

    Rows with equal features are met in their order.
    """
    places: dict[int, list[int]] = {}
    for place, digest in enumerate(unpack(rows["digests"], "<u8").tolist()):
        places.setdefault(digest, []).append(place)
    found = []
    for digest in digest_rows(features).tolist():
        equal = places.get(digest, [-1])
        found.append(equal.pop(0) if len(equal) > 1 else equal[0])
    return np.array(found, np.int64)


def pack(array: NDArray[Any]) -> str:
    """Return an array as text for JSON."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def unpack(text: str, dtype: Any) -> NDArray[Any]:
    """Return the flat array of a packed text."""
    return np.frombuffer(base64.b64decode(text), np.dtype(dtype).newbyteorder("<"))


def describe_review(
    found: Resolution, items: Dataset, numbers: Sequence[int], truth: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Return the rows to relabel, the annotators and the balance of classes as plain values.

    `before` counts a row in equal shares for its candidates, `after` for its resolved label; `confusion` has
    a row for each resolved label and a column for each prediction. Rows that were predicted by a model which
    was trained on them are not counted.
    """
    doubts, fair = find_doubts(found), found.is_fair
    n_classes = len(found.class_names)
    sets = found.candidates[fair]
    confusion = np.zeros((n_classes, n_classes), np.int64)
    np.add.at(confusion, (found.label[fair], found.predicted[fair]), 1)
    return {
        "examples": len(found.label),
        "measured": int(fair.sum()),
        "classes": list(found.class_names),
        "doubts": dict(Counter(each.kind for each in doubts)),
        "relabel": [
            {
                "row": numbers[each.row],
                "place": each.row,
                "item": None if items.items is None else items.items[each.row],
                "kind": each.kind,
                "score": round(each.score, 4),
                "reason": each.reason,
            }
            for each in doubts[:MAX_DOUBTS]
        ],
        "annotators": [asdict(each) for each in rate_annotators(found)],
        "before": (sets / sets.sum(1, keepdims=True)).sum(0).round(2).tolist(),
        "after": np.bincount(found.label[fair], minlength=n_classes).tolist(),
        "confusion": confusion.tolist(),
        "calibration": bin_probabilities(found, truth),
    }


def bin_probabilities(found: Resolution, truth: NDArray[np.int64] | None) -> list[dict[str, Any]]:
    """Return, for bins of equal size, the mean probability of predictions and how often they are candidates.

    Where true labels are known (−1 elsewhere), also how often they are right.
    """
    rows = np.flatnonzero(found.is_fair)
    rows = rows[np.argsort(found.probs[rows].max(1), kind="stable")]
    bins = []
    for part in np.array_split(rows, min(BINS, max(1, len(rows) // LEAST_OF_BIN))):
        covered = found.candidates[part, found.predicted[part]]
        known = part[truth[part] >= 0] if truth is not None else part[:0]
        right = found.predicted[known] == truth[known] if truth is not None else known
        bins.append(
            {
                "probability": float(found.probs[part].max(1).mean()),
                "covered": asdict(estimate_share(int(covered.sum()), len(part))),
                "right": asdict(estimate_share(int(right.sum()), len(known))) if len(known) else None,
            }
        )
    return bins
