"""The golden runs: every algorithm on tabular data and on images, and single runs of other settings.

The data and the folders (what users of an early commit have on their disks) are kept and not made again:
`data/make.py` and `make_folders.py` of commit 2bd6214 made them.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABULAR = HERE / "data" / "tabular.npz"
IMAGES = HERE / "data" / "images.npz"
ANSWERED = HERE / "data" / "answered.npz"
OWN_METHOD = HERE / "own_method.py"
FOLDERS = HERE / "folders"
# The run of `folders/unfinished`, which was interrupted; with seed 1, that of `folders/models`.
UNFINISHED_RUN = (
    *("train", "-a", "PRODEN", "-d", str(TABULAR), "--steps", "9", "--checkpoint_freq", "2"),
    *("--hparams", '{"batch_size": 16}', "--device", "cpu", "--threads", "1"),
)

# When phases begin: all of them within 12 updates of 5 an epoch. The queue is short, for speed.
ON_SCHEDULE = {
    "VALEN": {"warm_up": 3},
    "IDGP": {"warm_up_epoch": 1},
    "POP": {"rollWindow": 1, "warm_up": 1, "theta": 0.5},
    "PiCO": {"prot_start": 3, "moco_queue": 60},
    "DIRK": {"prot_start": 3, "moco_queue": 60},
    "ALIM": {"prot_start": 3, "start_epoch": 1, "moco_queue": 60},
    "PiCO_plus": {"prot_start": 2, "knn_start": 8, "pure_ratio": 0.6, "moco_queue": 60},
    "FREDIS": {"update_interval": 1, "theta": 0.2, "dec": 0.05, "inc": 0.05, "change_size": 7},
    "CroSel": {"warm_up": 1, "k": 1, "select_threshold": 0.25},
}
# What the last record logs once the last phase is entered.
REACHED = {
    "VALEN": lambda logged: logged["loss_rec"] != 0,
    "POP": lambda logged: logged["removed"] > 0,
    "ALIM": lambda logged: logged["importance"] > 0,
    "PiCO_plus": lambda logged: 0 < logged["reliable"] < 1 and logged["loss_guess"] > 0,
    "FREDIS": lambda logged: logged["changed"] > 0,
    "CroSel": lambda logged: 0 < logged["selected"] < 1 and logged["loss_sel"] > 0,
    "VIPLL": lambda logged: logged["loss_label"] != 0,
    "CEL": lambda logged: logged["loss_pdl"] > 0,
}
# Smaller than the default: after twelve updates rounding on another processor stays in the fifth digit.
IMAGE_LR = 1e-4
# Steps of optimisers in an update, where there is not 1 in each: VIPLL's networks start in update 12 // 3.
OPTIMISER_STEPS = {"IDGP": lambda update: 2, "VIPLL": lambda update: 1 if update < 4 else 2}

ALGORITHMS = (
    *("ABLE", "ABS_GCE", "ABS_MAE", "ALIM", "CAVL", "CC", "CRDPLL", "DIRK", "EXP", "FREDIS", "Forward"),
    *("GA", "IDGP", "LWS", "L_W", "MCL_GCE", "MCL_MSE", "NN", "OP_W", "PC", "POP", "PRODEN", "PiCO"),
    *("PiCO_plus", "SCL_EXP", "SCL_NL", "VALEN"),
    # after the paper
    *("PaPi", "GFWS", "SCARCE", "RECORDS", "CroSel", "VIPLL", "CEL"),
)

# Methods fitted in rounds, with few rounds and trees; those of answers have data with answers.
FITTED: dict[str, dict[str, Any]] = {
    "LR_EM": {"rounds": 4},
    "CLPL": {},
    "PL_KNN": {},
    "PL_AKNN": {},
    "IPAL": {},
    "PL_ECOC": {},
    "ET_AVG": {"n_estimators": 4},
    "RF_AVG": {"n_estimators": 4},
    "ET_EM": {"n_estimators": 4, "rounds": 3},
    "RF_EM": {"n_estimators": 4, "rounds": 3},
    "MV_LR": {},
    "DS_LR": {},
}
OF_ANSWERS = ("MV_LR", "DS_LR")


@dataclass(frozen=True)
class Case:
    """One golden run; it is interrupted after each of `stops` updates, and continued.

    `features` are given to its model, `reached` says of what the last record logs whether the last phase was
    entered, `rtol` is allowed where bits need not agree. The steps of a fitted method are its rounds and one.
    """

    name: str
    algorithm: str
    dataset: str
    hparams: dict[str, Any]
    steps: int = 12
    stops: tuple[int, ...] = (6, 11)
    checkpoint_freq: int = 4
    options: tuple[str, ...] = ()
    features: Path | None = None
    rtol: float = 1e-4
    fitted: bool = False
    reached: Any = field(default=None, compare=False)

    @property
    def words(self) -> list[str]:
        """The options of `plench train` that describe the run."""
        length = ["--steps", str(self.steps), "--checkpoint_freq", str(self.checkpoint_freq)]
        return [
            *("-a", self.algorithm, "-d", self.dataset, "--hparams", json.dumps(self.hparams)),
            *([] if self.fitted else length),
            *("--device", "cpu", "--threads", "1", *self.options),
        ]


def make_pair(algorithm: str) -> list[Case]:
    """Return the runs of an algorithm on both kinds of data."""
    hparams = {"batch_size": 16, **ON_SCHEDULE.get(algorithm, {})}
    reached = REACHED.get(algorithm)
    return [
        Case(f"tabular-{algorithm}", algorithm, str(TABULAR), hparams, features=TABULAR, reached=reached),
        Case(
            f"images-{algorithm}",
            algorithm,
            str(IMAGES),
            {**hparams, "model": "CNN", "lr": IMAGE_LR},
            features=IMAGES,
            reached=reached,
        ),
    ]


def make_fitted(algorithm: str) -> Case:
    """Return the run of a fitted method: cut after the preparation and, if there are several, two rounds."""
    rounds = FITTED[algorithm].get("rounds", 1)
    data = ANSWERED if algorithm in OF_ANSWERS else TABULAR
    return Case(
        f"fitted-{algorithm}",
        algorithm,
        str(data),
        FITTED[algorithm],
        steps=rounds + 1,
        stops=(1, 3) if rounds > 2 else (1,),
        checkpoint_freq=1,
        features=data,
        rtol=1e-3,  # solvers stop at a gradient of 1e-5, elsewhere at another iterate
        fitted=True,
    )


SHORT: dict[str, Any] = {"steps": 4, "stops": (2, 3), "checkpoint_freq": 2}
SEEDS = ("--hparams_seed", "3", "--trial_seed", "2", "--seed", "5")
OTHERS = [
    Case("drawn", "PRODEN", "Digits_FPS", {}, options=SEEDS),
    Case("drawn-noisy", "ALIM", "Digits_FPS", {"moco_queue": 60}, options=SEEDS, **SHORT),
    Case("id", "CC", "Digits_ID", {}, options=("--id_rate", "0.6", "--drop_true_rate", "0.1"), **SHORT),
    Case("uss", "LWS", "Digits_USS", {}, options=("--holdout_fraction", "0.2", "--seed", "1"), **SHORT),
    Case(
        "fps",
        "POP",
        str(TABULAR),
        {},
        options=("--pl_type", "fps", "--fps_rate", "0.4", "--tabular_test_fraction", "0.3"),
        **SHORT,
    ),
    Case("digit-images", "CRDPLL", "DigitImages", {"model": "CNN", "batch_size": 32}, **SHORT),
    Case("lenet", "PRODEN", str(IMAGES), {"model": "LeNet", "batch_size": 16}, **SHORT),
    Case("resnet", "PRODEN", str(IMAGES), {"model": "ResNet", "batch_size": 8, "lr": 1e-5}, **SHORT),
    Case("densenet", "CC", str(IMAGES), {"model": "DenseNet", "batch_size": 8, "lr": 1e-5}, **SHORT),
    Case(
        "bf16",
        "PRODEN",
        str(IMAGES),
        {"model": "CNN", "batch_size": 16, "lr": IMAGE_LR},
        options=("--precision", "bf16"),
        rtol=1e-2,  # bfloat16 has three digits
        **SHORT,
    ),
    Case("by-path", f"{OWN_METHOD}:Mean", str(TABULAR), {"batch_size": 16}, features=TABULAR, **SHORT),
    Case(
        "every-model",
        "PRODEN",
        str(TABULAR),
        {"batch_size": 16},
        options=("--save_model_every_checkpoint",),
        **SHORT,
    ),
    Case("long-tail", "RECORDS", "Digits_FPS", {}, options=("--imbalance", "8"), **SHORT),
    Case("no-model", "CAVL", str(TABULAR), {"batch_size": 16}, options=("--skip_model_save",), **SHORT),
]
PAIRS = (case for name in ALGORITHMS for case in make_pair(name))
CASES = {case.name: case for case in [*PAIRS, *map(make_fitted, FITTED), *OTHERS]}
