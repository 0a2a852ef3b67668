"""The protocol's check values of drawn configurations, and bounds of values that users give."""

import pytest

from plench.algorithms import find_algorithm
from plench.errors import UsageError
from plench.hparams import DataTraits, draw_hparams

# From the protocol's table: algorithm, kind of data, hparams_seed, trial_seed, values.
DRAWN = [
    (
        "PRODEN",
        "tabular",
        1,
        0,
        {"lr": 0.00011906162909279594, "weight_decay": 9.743107780992378e-05, "batch_size": 128},
    ),
    (
        "POP",
        "tabular",
        7,
        3,
        {
            "lr": 0.0019517928537161854,
            "weight_decay": 2.71437076003487e-06,
            "batch_size": 64,
            "rollWindow": 6,
            "warm_up": 15,
            "theta": 4.552538634313442e-05,
            "inc": 3.4462365388732755e-05,
            "pop_interval": 2000,
        },
    ),
    (
        "LWS",
        "image",
        19,
        2,
        {
            "lr": 0.00015242216222304298,
            "weight_decay": 0.0007920950258204684,
            "batch_size": 128,
            "lw_weight": 1,
        },
    ),
]


@pytest.mark.parametrize(("name", "kind", "hparams_seed", "trial_seed", "expected"), DRAWN)
def test_drawn_values_are_the_protocols(
    name: str, kind: str, hparams_seed: int, trial_seed: int, expected: dict[str, float]
) -> None:
    own = find_algorithm(name).card.hyperparameters
    drawn = draw_hparams(own, DataTraits(kind), hparams_seed, trial_seed)
    drawn.pop("model")
    assert drawn == expected


DEFAULTS = {
    "POP": {"rollWindow": 5, "warm_up": 20, "theta": 1e-3, "inc": 1e-3, "pop_interval": 1000},
    "ABS_GCE": {"q": 0.7},
    "LWS": {"lw_weight": 2},
    "IDGP": {"warm_up_epoch": 10},
    "NN": {"beta": 0.0},
}
VANILLA = (
    "PRODEN CAVL POP ABS_MAE ABS_GCE EXP MCL_GCE MCL_MSE CC LWS IDGP PC Forward NN GA SCL_EXP SCL_NL L_W OP_W"
)


@pytest.mark.parametrize("name", VANILLA.split())
def test_defaults_are_the_specifications(name: str) -> None:
    own = find_algorithm(name).card.hyperparameters
    drawn = draw_hparams(own, DataTraits("tabular"), 0, 0)
    shared = {"lr": 1e-3, "weight_decay": 1e-5, "batch_size": 128, "model": "MLP"}
    assert drawn == {**shared, **DEFAULTS.get(name, {})}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("POP", {"theta": 1.01}),
        ("POP", {"inc": 1.6}),
        ("POP", {"rollWindow": 0}),
        ("ABS_GCE", {"q": 0.0}),
        ("ABS_GCE", {"q": 1.5}),
        ("NN", {"beta": -0.1}),
        ("NN", {"beta": float("nan")}),
        ("IDGP", {"warm_up_epoch": 2.5}),
        ("LWS", {"lw_weight": -1.0}),
        ("CC", {"q": 0.7}),
    ],
)
def test_values_outside_the_specification_are_refused(name: str, values: dict[str, float]) -> None:
    own = find_algorithm(name).card.hyperparameters
    with pytest.raises(UsageError, match=next(iter(values))):
        draw_hparams(own, DataTraits("tabular"), 0, 0, values)
