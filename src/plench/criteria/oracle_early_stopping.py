"""Oracle accuracy with early stopping (OA w/ ES): the best checkpoint by true labels."""

from dataclasses import replace

from plench.criteria.oracle_accuracy import CRITERION as ORACLE_ACCURACY

CRITERION = replace(
    ORACLE_ACCURACY,
    name="OA_ES",
    title="OA w/ ES",
    meaning="Oracle accuracy with early stopping: validation accuracy on true labels, at the best checkpoint "
    "of each run.",
    position=4,
    early_stopping=True,
)
