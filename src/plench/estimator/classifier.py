"""`plench.PartialLabelClassifier`: a scikit-learn classifier that learns from candidate sets."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from plench.algorithms import AlgorithmEntry, find_algorithm
from plench.callbacks import watch_run
from plench.data import Dataset, TestSet, as_dataset
from plench.data.check import join_groups
from plench.data.roles import TableOptions, find_roles
from plench.data.tables import Table, is_frame, read_frame
from plench.errors import PlenchError, RunFailedError, UsageError
from plench.estimator import scorers
from plench.estimator.calibration import (
    LEAST_LABELS,
    Calibration,
    calibrate,
    calibrate_by_truth,
    find_calibration,
)
from plench.estimator.folds import reserve_rows
from plench.estimator.inputs import (
    SEPARATOR,
    InputError,
    as_input_errors,
    hide_truth,
    make_training_data,
    read_features,
    read_labels,
    read_matrix,
)
from plench.estimator.quality import (
    Estimate,
    Quality,
    estimate_quality,
    estimate_rate,
    estimate_share,
    score_examples,
)
from plench.estimator.review import resolve_candidates
from plench.estimator.search import (
    CRITERIA,
    Attempt,
    Searcher,
    TrainingData,
    announce_pixels,
    attempt,
    train_on_all,
)
from plench.estimator.verdict import Verdict, gather_evidence, judge
from plench.model_file import pack
from plench.training.model import TrainedModel, load, load_model_file

AUTO = "auto"
STEPS = 1000
VALIDATION_FRACTION = 0.2
WEIGHT_STEPS = 10  # copies of a row of mean weight, where weights are not whole numbers

logger = logging.getLogger("plench")


class Resolved(NamedTuple):
    """For each example the label that it is resolved to, and the probability of it among its candidates."""

    labels: NDArray[Any]
    probability: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Given:
    """What `fit` was given, read: data, classes, and what is known of the features."""

    data: TrainingData
    classes: NDArray[Any]
    n_features: int
    columns: tuple[str, ...] | None
    are_named: bool
    answer_columns: int | None = None
    truth: NDArray[np.int64] | None = None  # −1 where it is unknown; for rows that are not trained on
    test: TestSet | None = None


@dataclass(eq=False, repr=False)  # its parameters are the fields, as scikit-learn expects them
class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier that learns from candidate sets.

    Parameters
    ----------
    algorithm : str, default="PRODEN"
        Name of an algorithm (`plench list algorithms`), `path/to/file.py:ClassName`, or "auto", which tries
        methods and configurations and keeps the one that `criterion` prefers on held-out examples.
    hparams : mapping, optional
        Hyperparameters that differ from the algorithm's defaults. The network for tables is "MLP_BN" unless
        `model` names another.
    steps : int, default=1000
        Number of training steps.
    early_stopping : {"CR", "AA"}, optional
        Criterion by which the best model of the run is kept. Holds out `validation_fraction`.
    validation_fraction : float, default=0.2
        Share of the examples that is held out to measure a criterion.
    candidate_weights : {"uniform", "votes"}, default="uniform"
        How candidates are weighted where there are annotators' answers.
    classes : sequence, optional
        All classes in their order. By default the classes that occur.
    separator : str, default="|"
        Separator of class names in texts such as `cat|dog`.
    text_encoder, image_encoder : str, optional
        Pretrained encoders of columns of text and of images: a name (`MiniLM`, `EfficientNet-Lite0`),
        `sentence-transformers:FOLDER`, `transformers:FOLDER` or `file.py:NAME`. Without one, text is encoded
        by TF-IDF. The default for images is an encoder that is installed; "none" trains on pixels.
    time, n_runs : float and int, optional
        Budget of "auto" in seconds and in runs; 20 runs if neither is given.
    criterion : {"CR", "AA"}, default="CR"
        Criterion by which "auto" chooses.
    portfolio : sequence of str, optional
        Algorithms that "auto" tries.
    refit : bool, default=True
        Whether "auto" trains its choice once more on all examples. Not counted in `time`.
    reserve : float, default=0.0
        Share of the rows (at least 50, in whole groups) that is neither trained on nor used to choose. The
        estimates, the verdict and the calibration need it. With fewer than 300 rows, the model is trained on
        all of them, and models of five folds take the place of the reserved rows; no guarantee holds then.
    noise_rate : float, default=0.0
        Largest share of candidate sets that miss the true label, as far as you know; widens the estimates.
    random_state : int or RandomState, optional
        Seed of split and training. The same number gives the same model, and for data with candidates of
        their own the weights of `plench.train` with that number as `seed` and `trial_seed`. Candidates that
        are generated are always drawn with seed 0.
    device : str, default="cpu"
        Device to train on: cpu, cuda, mps or auto.
    threads : int, default=1
        Number of threads.
    verbose : bool, default=False
        Whether to show progress.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The classes.
    model_ : TrainedModel
        The trained model.
    algorithm_, hparams_ : str and dict
        Algorithm and hyperparameters that were trained.
    quality_ : Quality or None
        Criteria and what they say about accuracy: on the reserved rows, or without `reserve` on the held-out
        examples that chose the model, which flatters it.
    verdict_ : Verdict or None
        Whether the model is useful, compared with simple baselines on the reserved rows.
    calibration_ : Calibration or None
        The calibration of probabilities and prediction sets.
    reserved_ : ndarray of int
        The numbers of the reserved rows.
    leaderboard_ : list of dict or None
        Everything that "auto" tried, best first.
    history_ : list of dict
        One row per evaluation.

    Examples
    --------
    >>> model = plench.PartialLabelClassifier("PRODEN", random_state=0).fit(X, S)
    >>> model.predict(X_new), model.disambiguate().labels
    >>> model.save("model.plench")
    """

    algorithm: str = "PRODEN"
    _: KW_ONLY
    hparams: Mapping[str, Any] | None = None
    steps: int = STEPS
    early_stopping: str | None = None
    validation_fraction: float = VALIDATION_FRACTION
    candidate_weights: str = "uniform"
    classes: Sequence[Any] | None = None
    separator: str = SEPARATOR
    text_encoder: str | None = None
    image_encoder: str | None = None
    time: float | None = None
    n_runs: int | None = None
    criterion: str = "CR"
    portfolio: Sequence[str] | None = None
    refit: bool = True
    reserve: float = 0.0
    noise_rate: float = 0.0
    random_state: Any = None
    device: str = "cpu"
    threads: int = 1
    verbose: bool = False

    quality_: Quality | None = field(init=False)
    verdict_: Verdict | None = field(init=False)
    calibration_: Calibration | None = field(init=False)
    # The width of the matrix of answers that was learned from; what was learned from, until it is resolved;
    # logits of all rows, where models of folds assessed the model.
    _answer_columns: int | None = field(default=None, init=False)
    _unresolved: TrainingData | None = field(default=None, init=False)
    _fold_logits: NDArray[np.float64] | None = field(default=None, init=False)

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse matrices are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        answers: Any = None,
        votes: Any = None,
    ) -> PartialLabelClassifier:
        """Learn from features and candidate sets.

        Parameters
        ----------
        X : array, sparse matrix, frame, path or Dataset
            Features. A path to a table (`fit("data.csv")`), a frame with candidate columns or a
            `plench.Dataset` contains the candidates too; then `y` is None.
        y : optional
            Candidates (called S elsewhere): a 0/1 or weight matrix (N, K), a list of sets, texts such as
            `cat|dog`, annotators' answers, or ordinary labels.
        sample_weight : array of shape (N,), optional
            How much each row counts in training. Whole numbers are numbers of copies; others are rounded to
            tenths of their mean. Estimates on reserved rows count each row once.
        groups : array of shape (N,), optional
            Rows of a group stay in one part of every split.
        answers, votes : array or frame, optional
            In place of `y`: the classes that M annotators chose (N, M), or the votes for K classes (N, K). A
            matrix of whole numbers could be either, so the keyword is needed.

        Returns
        -------
        PartialLabelClassifier
            The fitted estimator.
        """
        is_auto = self.algorithm == AUTO
        if is_auto and self.early_stopping is not None:
            raise UsageError(
                f"early_stopping is {self.early_stopping!r}, but auto keeps the best model of every run by "
                "`criterion`; expected None"
            )
        if not is_auto and (self.time is not None or self.n_runs is not None):
            raise UsageError(f"time and n_runs are the budget of auto; the algorithm is {self.algorithm!r}")
        if (is_auto or self.early_stopping is not None) and self.validation_fraction == 0:
            raise UsageError(
                "validation_fraction is 0, but a criterion is measured on held-out examples; expected a "
                "number above 0 and below 1"
            )
        given = self._read_training(X, y, sample_weight, groups, answers, votes)
        seed = self.random_state  # a number is the seed itself
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        settings = {
            "steps": self.steps,
            "seed": int(seed),
            "trial_seed": int(seed),
            "device": self.device,
            "threads": self.threads,
            "candidate_weights": self.candidate_weights,
        }
        reserved = reserve_rows(given.data.dataset, self.reserve, int(seed))
        training = given.data
        if len(reserved):
            training = training.take(np.delete(np.arange(given.data.dataset.n_examples), reserved))
        training = training.repeated()
        leaderboard: list[dict[str, Any]] | None = None
        if is_auto:
            searcher = Searcher(
                training,
                self.criterion,
                self.validation_fraction,
                settings,
                self.time,
                self.n_runs,
                self.portfolio,
                self.hparams,
                self.verbose,
            )
            trial = searcher.run()
            entry, leaderboard = trial.entry, searcher.leaderboard(trial)
            measured = chosen = trial.first
            if self.refit:
                if self.verbose:
                    text = "training the choice once more, on all its data; Ctrl-C keeps it as it is"
                    print(text, file=sys.stderr, flush=True)
                chosen = train_on_all(measured, training, entry)
        else:
            entry = find_algorithm(self.algorithm)
            measured = chosen = self._train(training, settings, entry)
        assert chosen.model is not None
        self.classes_ = given.classes
        self.n_features_in_ = given.n_features
        self._columns = given.columns or ()
        self._answer_columns = given.answer_columns
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        if given.are_named:
            self.feature_names_in_ = np.array(given.columns, dtype=object)
        self.algorithm_ = chosen.config.algorithm
        self.hparams_ = dict(chosen.config.hparams)
        self.history_ = [  # without configuration, with the values that the method logged
            {
                **{k: v for k, v in row.items() if k not in ("hparams", "args", "logged")},
                **row.get("logged", {}),
            }
            for row in measured.records
        ]
        self.leaderboard_ = leaderboard
        self.reserved_ = reserved
        self.quality_, self.verdict_, self.calibration_ = None, None, None
        if not self.reserve and measured.held_out is not None and len(measured.held_out):
            self.quality_ = estimate_quality(
                measured.scores,
                measured.held_out,
                noise_rate=self.noise_rate,
                source="held-out",
                chosen_by=self.early_stopping if leaderboard is None else self.criterion,
                refitted=chosen is not measured,
            )
        self.model_ = chosen.model
        self.model_.notes = {}
        self._unresolved, self._fold_logits = given.data, None
        if self.reserve:
            self._assess(given, reserved, training, entry, int(seed))
        self.model_.record_range(given.data.dataset.features)
        self.model_.notes |= self._describe(given)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each example."""
        labels = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[labels])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities (n, K) of the classes, in the order of `classes_`."""
        check_is_fitted(self)
        return self.model_.predict_proba(self._read_new(X))

    def predict_set(self, X: Any, coverage: float = 0.9, *, promise: str | None = None) -> NDArray[np.bool_]:
        """Return prediction sets (n, K), which keep a promise with probability `coverage` at least.

        Parameters
        ----------
        X : array, sparse matrix, frame or path
            Features.
        coverage : float, default=0.9
            The probability, for new rows that are exchangeable with those of the calibration.
        promise : {"truth", "truth_if_complete", "some_candidate"}, optional
            The set contains the true label (calibrated on true labels), or the true label if candidate sets
            are complete, or some candidate only. By default the first that the calibration allows.

        Returns
        -------
        ndarray of bool of shape (n, K)
            In the order of `classes_`. A set with no class or with all of them is an abstention.

        Raises
        ------
        UsageError
            If the model is not calibrated: fit it with `reserve`, or call `calibrate`.
        """
        check_is_fitted(self)
        return find_calibration(self.model_).predict_sets(
            self.model_.predict_logits(self._read_new(X)), coverage, promise
        )

    def calibrate(self, X: Any, S: Any = None, *, y: Any = None) -> PartialLabelClassifier:
        """Calibrate probabilities and prediction sets on rows that the model was not trained on.

        Parameters
        ----------
        X : array, sparse matrix, frame or path
            Features.
        S : array-like, optional
            Candidate sets as `fit` takes them, for the promises "truth_if_complete" and "some_candidate".
        y : array-like, optional
            In place of `S`: true labels of at least 30 rows chosen at random (an audit), for the promise
            "truth". This is ordinary calibration, which needs no assumption about candidate sets.

        Returns
        -------
        PartialLabelClassifier
            The estimator, whose `calibration_` is replaced.
        """
        check_is_fitted(self)
        if (S is None) == (y is None):
            raise InputError("calibrate needs candidate sets S or true labels y: one of them")
        logits = self.model_.predict_logits(self._read_new(X))
        sets = scorers.read_candidates(self, S if y is None else y, len(logits))
        if not sets.any(1).all():
            raise InputError(f"the set of example {sets.any(1).argmin()} has no class that the model knows")
        if y is not None and (sets.sum(1) > 1).any():
            raise InputError("y needs one label per example; some examples have several")
        if y is None:
            self.calibration_ = calibrate(logits, sets)
        else:
            self.calibration_ = calibrate_by_truth(logits, sets.argmax(1), self.calibration_)
        self.model_.notes["calibration"] = self.calibration_.to_json()
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy where `y` are true labels, and the covering rate where they are candidates.

        An ordinary label is a set of one, for which the two are the same.
        """
        return float(np.average(scorers.score(self, X, y)["CR"], weights=sample_weight))

    def covering_score(self, X: Any, S: Any) -> float:
        """Return the covering rate (CR): how often the prediction is a candidate."""
        return scorers.covering(self, X, S)

    def approximated_score(self, X: Any, S: Any) -> float:
        """Return the approximated accuracy (AA): the prediction's share of the candidates' probability."""
        return scorers.approximated(self, X, S)

    def disambiguate(self) -> Resolved:
        """Return for each training example the label it was resolved to, with its probability.

        It is the candidate that the model finds most probable, and the share of it among the candidates.
        """
        check_is_fitted(self)
        if self._unresolved is None and not hasattr(self, "_resolved"):
            raise UsageError("a loaded model has no training examples; resolve others with `plench resolve`")
        if self._unresolved is not None:
            data, weights = self._unresolved.dataset, self._unresolved.weights
            probs = self.model_.predict_proba(data.features)
            self._resolved = resolve_candidates(probs, data.candidates if weights is None else weights)
            self._unresolved = None
        return Resolved(self.classes_[self._resolved[0]], self._resolved[1])

    def estimate_quality(self, X: Any, S: Any) -> Quality:
        """Return CR, AA and what they say of accuracy, with intervals, on examples not learned from.

        `quality_` has the same for the share that `fit` held out, if it did.
        """
        scores = scorers.score(self, X, S)
        sets = scorers.read_candidates(self, S, len(scores["CR"]))
        return estimate_quality(scores, sets, noise_rate=self.noise_rate)

    def estimate_accuracy(self, X: Any, y: Any) -> Estimate:
        """Return the accuracy on a few examples with true labels, with its exact interval."""
        probs = self.predict_proba(X)
        labels = scorers.read_candidates(self, y, len(probs))
        right = labels[np.arange(len(probs)), probs.argmax(1)]
        if (labels.sum(1) > 1).any():
            raise InputError(
                "estimate_accuracy needs true labels, one per example; some examples have several candidates"
            )
        return estimate_share(int(right.sum()), len(right))

    def save(self, path: str | Path) -> None:
        """Write the model to one file, which `plench.load`, `plench predict` and `plench info` read."""
        check_is_fitted(self)
        self.model_.save(path)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> PartialLabelClassifier:
        """Load a fitted estimator from a model file, without what it learned from.

        Parameters
        ----------
        path : str or path
            A model file (`save`, `plench fit`), or the folder of a run.
        **options
            Those of `plench.load`: `device`, `run_code` and so on.

        Returns
        -------
        PartialLabelClassifier
            With predictions, scores, `quality_`, `verdict_` and calibration; `disambiguate` needs `fit`.
        """
        model = load(path, **options)
        notes, config = model.notes, model.run["config"]
        about = notes.get("estimator") or {}
        made = cls(**(about.get("params") or {"algorithm": config["algorithm"]}))
        encoder = getattr(model.inputs, "encoder", None)
        columns = None if encoder is None else [code.name for code in encoder.codes]
        made.device, made.model_, made.classes_ = options.get("device", "cpu"), model, model.classes
        made.n_features_in_ = about.get("n_features") or (len(columns) if columns else model.n_inputs)
        made._columns = tuple(about.get("columns") or columns or ())
        made._answer_columns = about.get("answer_columns")
        if about.get("are_named", columns is not None):
            made.feature_names_in_ = np.array(made._columns, dtype=object)
        made.algorithm_, made.hparams_ = config["algorithm"], dict(config["hparams"])
        made.history_, made.leaderboard_ = [], notes.get("leaderboard")
        made.reserved_ = np.array((notes.get("reserved") or {}).get("rows", []), dtype=np.int64)
        for name, kind in (("quality", Quality), ("verdict", Verdict), ("calibration", Calibration)):
            content: Any = notes.get(name)
            setattr(made, f"{name}_", kind.from_json(content) if content else None)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: the model as the bytes of its file, and no training data."""
        if getattr(self, "_unresolved", None) is not None:
            self.disambiguate()
        state = {**super().__getstate__(), "_fold_logits": None}
        if isinstance(state.get("model_"), TrainedModel):
            state["model_"] = pack(state["model_"].to_content())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Load the model. Unpickling runs code anyway, so third-party code in the model is run too."""
        super().__setstate__(state)
        if isinstance(state.get("model_"), bytes):
            self.model_ = load_model_file(state["model_"], self.device, run_code=True)

    def _read_training(
        self, X: Any, S: Any, sample_weight: Any, groups: Any, answers: Any, votes: Any
    ) -> Given:
        """Read what `fit` was given."""
        has_candidates = isinstance(X, Dataset | str | os.PathLike)
        is_alone = S is None and answers is None and votes is None
        if not has_candidates and is_alone and is_frame(X):
            roles = find_roles(read_frame(X, "X"), TableOptions())
            names = ("candidates", "class_columns", "annotators", "answers", "annotator")
            has_candidates = any(getattr(roles, name) for name in names)
        if has_candidates:
            if not is_alone:
                raise InputError("the data have candidates of their own: give no second argument")
            image_encoder = self.image_encoder
            if image_encoder is None and isinstance(X, str | os.PathLike):
                image_encoder = "auto"
            whole = as_dataset(X, text_encoder=self.text_encoder, image_encoder=image_encoder)
            truth = whole.known_labels if whole.labels is None else whole.labels
            data = hide_truth(whole)
            columns = data.features.names if isinstance(data.features, Table) else None
            classes = np.arange(data.n_classes) if data.class_names is None else np.array(data.class_names)
            n_features = int(np.prod(data.input_shape[1:]))
            given = Given(TrainingData(data), classes, n_features, columns, columns is not None)
            given = replace(given, truth=truth, test=whole.test)
        else:
            features, columns, are_texts = read_features(X, self.text_encoder, self.image_encoder)
            named = {"answers": answers, "votes": votes}
            labels = read_labels(S, len(features), classes=self.classes, separator=self.separator, **named)
            dataset = make_training_data(features, labels)
            n_features = int(np.prod(features.shape[1:])) if columns is None else len(columns)
            training = TrainingData(dataset, labels.weights)
            given = Given(training, labels.classes, n_features, columns, are_texts, labels.answer_columns)
        if groups is None and sample_weight is None:
            return given
        data = given.data.dataset
        if groups is not None:
            numbers = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1)
            own = data.groups  # of the data, or of copies of rows
            if has_candidates and own is not None:
                raise InputError("the data have groups of their own: give no groups")
            with as_input_errors():
                data = replace(data, groups=numbers)  # checks them
            data = data if own is None else replace(data, groups=join_groups([own, numbers]))
        counts = None if sample_weight is None else count_copies(sample_weight, data.n_examples)
        return replace(given, data=replace(given.data, dataset=data, counts=counts))

    def _train(self, data: TrainingData, settings: Mapping[str, Any], entry: AlgorithmEntry) -> Attempt:
        """Train one run."""
        criterion = self.early_stopping
        if criterion is not None and criterion not in CRITERIA:
            raise UsageError(
                f"early_stopping is {criterion!r}; expected None or one of {', '.join(CRITERIA)}"
            )
        holdout = 0.0 if criterion is None else self.validation_fraction
        if holdout == 0:
            data = data.whole()
        if data.dataset.card.kind == "image":
            announce_pixels(data, entry, settings, 1, None)
        config = data.configure(entry, holdout, self.hparams, **settings)
        with watch_run() if self.verbose else nullcontext() as told:
            made = attempt(config, data, entry, criterion, told)
        if made.status == "interrupted":
            raise KeyboardInterrupt
        if made.model is None:
            raise RunFailedError(f"{self.algorithm} could not be trained: {made.message or made.status}")
        return made

    def _assess(
        self,
        given: Given,
        reserved: NDArray[np.int64],
        training: TrainingData,
        entry: AlgorithmEntry,
        seed: int,
    ) -> None:
        """Calibrate, estimate and judge on the reserved rows, or on all rows by models of folds."""
        if self.verbose:
            where = f"{len(reserved):,} reserved rows" if len(reserved) else "five folds"
            print(f"comparing the model with baselines on {where}", file=sys.stderr, flush=True)
        try:
            found = gather_evidence(given.data, given.truth, self.model_, training, reserved, seed, entry)
        except (KeyboardInterrupt, PlenchError) as error:
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
            logger.warning("the model is not assessed, and there is no verdict: %s", reason)
            return
        self._fold_logits = found.logits if found.source == "cross-fitted" else None
        labels = found.labels if (found.labels >= 0).all() and len(found.labels) >= LEAST_LABELS else None
        self.calibration_ = calibrate(found.logits, found.candidates, labels, found.source)
        self.quality_ = estimate_quality(
            score_examples(found.logits / self.calibration_.temperature, found.candidates),
            found.candidates,
            right=found.right,
            units=found.units,
            noise_rate=self.noise_rate,
            source=found.source,
            own_test=None
            if given.test is None
            else estimate_rate(
                self.model_.predict_logits(given.test.features).argmax(1) == given.test.labels
            ),
        )
        self.verdict_ = judge(found, self.quality_)

    def _describe(self, given: Given) -> dict[str, Any]:
        """Return what the model's file says of it besides its run, as plain values."""
        params = {}
        for name, value in self.get_params(deep=False).items():
            plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
            with suppress(TypeError):  # a class, a generator, … is left out
                params[name] = json.loads(json.dumps(plain))
        params.setdefault("algorithm", self.algorithm_)
        data = given.data.dataset
        items = data.items
        notes: dict[str, Any] = {
            "estimator": {
                "params": params,
                "n_features": given.n_features,
                "columns": given.columns,
                "are_named": given.are_named,
                "answer_columns": given.answer_columns,
            },
            "reserved": {
                "rows": self.reserved_.tolist(),
                "items": None if items is None else [items[row] for row in self.reserved_],
                "n_examples": data.n_examples,
                "mean_candidates": data.mean_candidates,
                "fingerprint": data.fingerprint,
            },
        }
        if not np.array_equal(given.classes, np.arange(len(given.classes))):
            notes["classes"] = given.classes.tolist()
        for name in ("quality", "verdict", "calibration"):
            if getattr(self, f"{name}_") is not None:
                notes[name] = getattr(self, f"{name}_").to_json()
        if self.leaderboard_ is not None:
            notes["leaderboard"] = self.leaderboard_
        return notes

    def _read_new(self, X: Any) -> Any:
        """Return features to predict on as the model takes them; raise InputError where they do not fit."""
        is_table = self.model_.inputs.kind == "table"
        if isinstance(X, Table) or (is_table and isinstance(X, str | os.PathLike)):
            return X
        if is_table and isinstance(X, np.ndarray) and X.ndim == 4:
            return X  # images, for an encoder
        fitted = getattr(self, "feature_names_in_", None)
        if is_frame(X):
            names = list(X if isinstance(X, Mapping) else getattr(X, "column_names", X.columns))
            if not all(isinstance(name, str) for name in names):
                pass  # columns by their place
            elif fitted is None:
                warnings.warn(
                    "X has feature names, but PartialLabelClassifier was fitted without feature names",
                    UserWarning,
                    stacklevel=3,
                )
            elif missing := sorted(set(fitted.tolist()) - set(names)):  # others and the order do not matter
                raise InputError(
                    "The feature names should match those that were passed during fit.\n"
                    "Feature names seen at fit time, yet now missing:\n"
                    + "".join(f"- {name}\n" for name in missing[:5])
                )
            if is_table:
                return X
            X = np.column_stack(list(X.values())) if isinstance(X, Mapping) else X
        elif fitted is not None:
            warnings.warn(
                "X does not have valid feature names, but PartialLabelClassifier was fitted with feature "
                "names",
                UserWarning,
                stacklevel=3,
            )
        with as_input_errors():
            matrix = read_matrix(X)
        width = int(np.prod(matrix.shape[1:]))
        if width != self.n_features_in_:
            raise InputError(
                f"X has {width} features, but PartialLabelClassifier is expecting {self.n_features_in_} "
                "features as input"
            )
        if is_table:
            return dict(zip(self._columns, matrix.T, strict=True))
        return matrix


def count_copies(sample_weight: Any, n: int) -> NDArray[np.int64]:
    """Return how often each row is repeated in training, in proportion to its weight."""
    with as_input_errors():
        weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n,):
        raise InputError(f"sample_weight has shape {weights.shape}; expected one weight for each of {n} rows")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights > 0).any()):
        raise InputError("sample_weight must be finite numbers from 0, and not every weight may be zero")
    if (weights % 1 != 0).any() or weights.mean() > WEIGHT_STEPS:
        weights = np.rint(weights * WEIGHT_STEPS / weights.mean())
    counts = weights.astype(np.int64)
    return np.asarray(counts // np.gcd.reduce(counts))
