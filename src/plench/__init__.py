"""plench: benchmark and toolbox for partial-label learning.

What a notebook needs, each with an example in its own help:

    import plench

    outcome = plench.train("PRODEN", "Digits_FPS", steps=500)        # one run
    model = plench.load(outcome.folder, criterion="CR")              # its model, chosen without true labels
    model.predict(features)
    plench.sweep(["PRODEN", "CC"], ["Digits_FPS"], "runs", n_hparams=4, n_trials=2)   # many runs
    plench.collect("runs")                                           # tables, shown by the notebook
    plench.results("runs").frame("cells")                            # the same as a pandas or polars frame
    plench.list_algorithms(), plench.list_datasets()
    plench.check(MyAlgorithm)                                        # a class of yours against the contract
    plench.PartialLabelClassifier("auto", time=60).fit(X, S)         # scikit-learn's way, docs/estimator.md

Importing this package is cheap; torch is imported when training or prediction needs it. Authors of an
algorithm import from `plench.algorithms`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from plench.settings import __version__

if TYPE_CHECKING:
    from plench.api import collect as collect
    from plench.api import list_algorithms as list_algorithms
    from plench.api import list_datasets as list_datasets
    from plench.api import refit as refit
    from plench.api import results as results
    from plench.api import sweep as sweep
    from plench.api import train as train
    from plench.callbacks import Callback as Callback
    from plench.contract import check as check
    from plench.data.dataset import Dataset as Dataset
    from plench.estimator import PartialLabelClassifier as PartialLabelClassifier
    from plench.estimator import scorers as scorers
    from plench.training.model import load as load

# Imported from these modules when first used.
_MODULES = {
    "Callback": "plench.callbacks",
    "Dataset": "plench.data.dataset",
    "PartialLabelClassifier": "plench.estimator",
    "check": "plench.contract",
    "collect": "plench.api",
    "list_algorithms": "plench.api",
    "list_datasets": "plench.api",
    "load": "plench.training.model",
    "refit": "plench.api",
    "results": "plench.api",
    "scorers": "plench.estimator",
    "sweep": "plench.api",
    "train": "plench.api",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'plench' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
