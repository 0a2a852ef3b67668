"""The protocol's check values of drawn configurations, defaults, and bounds of values that users give."""

from typing import Any

import pytest

from plench.algorithms import find_algorithm
from plench.errors import UsageError
from plench.hparams import DataTraits, draw_hparams

TABULAR, IMAGE = DataTraits("tabular"), DataTraits("image")
AGGREGATE, VAGUEST = DataTraits("image", 0.00132), DataTraits("image", 0.17556)


def draw(name: str, traits: DataTraits, hparams_seed: int, trial_seed: int, **given: Any) -> dict[str, Any]:
    return draw_hparams(find_algorithm(name).card.hyperparameters, traits, hparams_seed, trial_seed, given)


def of(lr: float, weight_decay: float, batch_size: int, **own: Any) -> dict[str, Any]:
    return {"lr": lr, "weight_decay": weight_decay, "batch_size": batch_size, **own}


QUEUE = {"feat_dim": 64, "moco_queue": 4096, "prot_start": 178, "conf_ema_range": "0.95,0.8"}
# From the protocol's table: algorithm, data, hparams_seed, trial_seed, values.
DRAWN: list[tuple[str, DataTraits, int, int, dict[str, Any]]] = [
    ("PRODEN", TABULAR, 1, 0, of(0.00011906162909279594, 9.743107780992378e-05, 128)),
    (
        *("POP", TABULAR, 7, 3),
        of(0.0019517928537161854, 2.71437076003487e-06, 64)
        | {"rollWindow": 6, "warm_up": 15, "theta": 4.552538634313442e-05, "inc": 3.4462365388732755e-05}
        | {"pop_interval": 2000},
    ),
    ("LWS", IMAGE, 19, 2, of(0.00015242216222304298, 0.0007920950258204684, 128, lw_weight=1)),
    (
        *("PiCO", AGGREGATE, 2, 1),
        of(0.0025521952552627065, 2.580672964987815e-06, 128, **QUEUE)
        | {"momentum": 0.9, "moco_m": 0.999, "proto_m": 0.9, "loss_weight": 0.5},
    ),
    (
        *("FREDIS", TABULAR, 5, 2),
        of(0.00040489514724862546, 2.1017496721804196e-06, 64, theta=1e-06, inc=0.1, delta=1.0, dec=1e-06)
        | {"times": 3, "change_size": 50, "update_interval": 10, "lam": 1, "alpha": 0.001},
    ),
    ("VIPLL", TABULAR, 1, 0, {"likelihood_weight": 189.0098881180867, "prior_weight": 2.0}),
    ("VIPLL", IMAGE, 7, 3, {"likelihood_weight": 237.49812013421626, "prior_weight": 5.0}),
    ("VIPLL", TABULAR, 19, 4, {"likelihood_weight": 13.281696255714818, "prior_weight": 2.0}),
    ("CEL", TABULAR, 1, 0, {"alpha": 0.1, "gamma1": 2, "beta": 0.5, "gamma2": 1, "embed_dim": 32}),
    ("CEL", TABULAR, 7, 3, {"alpha": 0.5, "gamma1": 1, "beta": 0.5, "gamma2": 5}),
    ("CEL", IMAGE, 19, 4, {"alpha": 0.1, "gamma1": 1, "beta": 1, "gamma2": 1}),
    (
        *("ALIM", TABULAR, 3, 0),
        of(0.00040753017105436845, 5.820286029577049e-06, 128, **QUEUE)
        | {"momentum": 0.8, "moco_m": 0.9, "proto_m": 0.99, "loss_weight": 1.0, "start_epoch": 20}
        | {"loss_weight_mixup": 1.0, "mixup_alpha": 4, "noise_rate": 0.3},
    ),
]


@pytest.mark.parametrize(("name", "traits", "hparams_seed", "trial_seed", "values"), DRAWN)
def test_drawn_values_are_the_protocols(
    name: str, traits: DataTraits, hparams_seed: int, trial_seed: int, values: dict[str, Any]
) -> None:
    drawn = draw(name, traits, hparams_seed, trial_seed)
    assert {key: drawn[key] for key in values} == values
    if name in ("PRODEN", "POP", "LWS"):
        assert set(drawn) == {*values, "model"}


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
    assert draw(name, TABULAR, 0, 0) == of(1e-3, 1e-5, 128, model="MLP", **DEFAULTS.get(name, {}))


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
        *(("POP", given) for given in ({"theta": 1.01}, {"inc": 1.6}, {"rollWindow": 0})),
        *(("ABS_GCE", given) for given in ({"q": 0.0}, {"q": 1.5})),
        *(("NN", given) for given in ({"beta": -0.1}, {"beta": float("nan")})),
        ("IDGP", {"warm_up_epoch": 2.5}),
        ("LWS", {"lw_weight": -1.0}),
        ("CC", {"q": 0.7}),
        *(("FREDIS", given) for given in ({"dec": 0.0}, {"views": 2})),
        ("ALIM", {"normalisation": "softmax"}),
        ("PiCO", {"moco_m": 1.5}),
        ("ABLE", {"temperature": 0.0}),
        ("VALEN", {"knn": 0}),
        ("PaPi", {"tau_proto": 0.0}),
        ("GFWS", {"entropy_weight": -0.1}),
        ("SCARCE", {"prior": "estimated"}),
        *(("RECORDS", given) for given in ({"base": "CC"}, {"m": 1.1})),
        ("CroSel", {"k": 0}),
        ("VIPLL", {"likelihood_weight": -1.0}),
        ("CEL", {"embed_dim": 0}),
        *(("PL_AKNN", given) for given in ({"threshold": 0.0}, {"neighbours": 0}, {"geometry": "global"})),
        ("PiCO_plus", {"pure_ratio": 1.2}),
    ],
)
def test_values_outside_the_specification_are_refused(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(given))):
        draw(name, TABULAR, 0, 0, **given)
