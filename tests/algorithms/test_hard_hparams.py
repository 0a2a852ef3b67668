"""The protocol's check values of drawn configurations, for the holistic and the noisy algorithms."""

from typing import Any

import pytest

from plench.algorithms import find_algorithm
from plench.errors import UsageError
from plench.hparams import DataTraits, draw_hparams

AGGREGATE, VAGUEST = DataTraits("image", 0.00132), DataTraits("image", 0.17556)
TABULAR = DataTraits("tabular")

# From the protocol's table: algorithm, data, hparams_seed, trial_seed, values.
DRAWN: list[tuple[str, DataTraits, int, int, dict[str, Any]]] = [
    (
        "PiCO",
        AGGREGATE,
        2,
        1,
        {
            "lr": 0.0025521952552627065,
            "weight_decay": 2.580672964987815e-06,
            "batch_size": 128,
            "prot_start": 178,
            "momentum": 0.9,
            "feat_dim": 64,
            "moco_queue": 4096,
            "moco_m": 0.999,
            "proto_m": 0.9,
            "loss_weight": 0.5,
            "conf_ema_range": "0.95,0.8",
        },
    ),
    (
        "FREDIS",
        TABULAR,
        5,
        2,
        {
            "lr": 0.00040489514724862546,
            "weight_decay": 2.1017496721804196e-06,
            "batch_size": 64,
            "theta": 1e-06,
            "inc": 0.1,
            "delta": 1.0,
            "dec": 1e-06,
            "times": 3,
            "change_size": 50,
            "update_interval": 10,
            "lam": 1,
            "alpha": 0.001,
        },
    ),
    (
        "ALIM",
        TABULAR,
        3,
        0,
        {
            "lr": 0.00040753017105436845,
            "weight_decay": 5.820286029577049e-06,
            "batch_size": 128,
            "prot_start": 178,
            "momentum": 0.8,
            "feat_dim": 64,
            "moco_queue": 4096,
            "moco_m": 0.9,
            "proto_m": 0.99,
            "loss_weight": 1.0,
            "conf_ema_range": "0.95,0.8",
            "start_epoch": 20,
            "loss_weight_mixup": 1.0,
            "mixup_alpha": 4,
            "noise_rate": 0.3,
        },
    ),
]


def draw(name: str, traits: DataTraits, hparams_seed: int, trial_seed: int, **given: Any) -> dict[str, Any]:
    return draw_hparams(find_algorithm(name).card.hyperparameters, traits, hparams_seed, trial_seed, given)


@pytest.mark.parametrize(("name", "traits", "hparams_seed", "trial_seed", "values"), DRAWN)
def test_drawn_values(
    name: str, traits: DataTraits, hparams_seed: int, trial_seed: int, values: dict[str, Any]
) -> None:
    drawn = draw(name, traits, hparams_seed, trial_seed)
    assert {key: drawn[key] for key in values} == values


@pytest.mark.parametrize("hparams_seed", [0, 1, 7])
@pytest.mark.parametrize("traits", [AGGREGATE, VAGUEST])
def test_noise_rate_of_the_protocol(traits: DataTraits, hparams_seed: int) -> None:
    rate = traits.protocol_noise_rate
    assert rate is not None
    assert draw("ALIM", traits, hparams_seed, 0)["noise_rate"] == rate
    assert draw("PiCO_plus", traits, hparams_seed, 0)["pure_ratio"] == 1 - rate


def test_noise_rate_elsewhere() -> None:
    assert draw("ALIM", TABULAR, 0, 0)["noise_rate"] == 0.2
    assert draw("PiCO_plus", TABULAR, 0, 0)["pure_ratio"] == 1
    rates = {draw("ALIM", TABULAR, h, 0)["noise_rate"] for h in range(1, 60)}
    ratios = {draw("PiCO_plus", TABULAR, h, 0)["pure_ratio"] for h in range(1, 60)}
    assert rates == {0.1, 0.2, 0.3, 0.4, 0.5, 0.7}
    assert ratios == {0.6, 0.8, 0.95, 0.99, 1.0}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("FREDIS", {"dec": 0.0}),
        ("FREDIS", {"views": 2}),
        ("ALIM", {"normalisation": "softmax"}),
        ("PiCO", {"moco_m": 1.5}),
        ("ABLE", {"temperature": 0.0}),
        ("VALEN", {"knn": 0}),
        ("PaPi", {"tau_proto": 0.0}),
        ("GFWS", {"entropy_weight": -0.1}),
        ("SCARCE", {"prior": "estimated"}),
        ("RECORDS", {"base": "CC"}),
        ("RECORDS", {"m": 1.1}),
        ("CroSel", {"k": 0}),
        ("PiCO_plus", {"pure_ratio": 1.2}),
    ],
)
def test_values_out_of_bounds_are_refused(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(given))):
        draw(name, TABULAR, 0, 0, **given)
