"""Each departure of the pages that changes numbers, switched on: they change where the page says so."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from plench.algorithms import Algorithm, AlgorithmEntry, algorithms
from plench.contract import AlgorithmUnderTest
from plench.contract.under_test import make_examples
from tests.conftest import ROOT
from tests.departures import DEPARTURES, OTHER, Departure, frontier, vanilla
from tests.probe import at_step, batch_of, evaluate

NOTES = ROOT / "docs" / "algorithms" / "notes"
BY_NAME = {entry.theirs.__name__: entry for entry in DEPARTURES}
K = 5


def rows_of(page: str) -> list[str]:
    """Return the rows of a page's table of departures."""
    text = (NOTES / f"{page}.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split("## Departures")[1], flags=re.MULTILINE)[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


# Pages of methods that are trained on batches; the fitted ones are held to vectors of their own.
PAGES = sorted(name for name, entry in algorithms().items() if entry.card.family != "classical")


@pytest.mark.parametrize("page", PAGES)
def test_every_row_is_a_switch_or_changes_no_numbers(page: str) -> None:
    switches = [entry.what for entry in DEPARTURES if entry.page == page]
    words = [*switches, *OTHER.get(page, {})]
    rows = rows_of(page)
    assert rows
    for row in rows:
        assert any(what in row for what in words), f"{page}: no switch for {row}"
    for what in words:
        assert sum(what in row for row in rows) == 1, f"{page}: {what!r} is not on the page, or twice"


# Losses ---------------------------------------------------------------------------------------------------


class Inputs(NamedTuple):
    """Logits and candidates of a batch, in the precision where the difference shows."""

    logits: Tensor
    candidates: Tensor


def draw(seed: int = 0) -> Inputs:
    """Draw a batch in which no set is empty or full."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(6, K, generator=generator, dtype=torch.float64)
    candidates = torch.rand(6, K, generator=generator) < 0.5
    candidates[:, 0], candidates[:, 1] = True, False
    return Inputs(logits, candidates)


def saturated() -> Inputs:
    """In single precision, the non-candidate 1 has all the probability."""
    logits, candidates = draw()
    logits[0, 1] = 200
    return Inputs(logits.float(), candidates)


def with_a_full_set() -> Inputs:
    logits, candidates = draw()
    candidates[2] = True
    return Inputs(logits, candidates)


def without_pairs() -> Inputs:
    return Inputs(draw().logits, torch.ones(6, K, dtype=torch.bool))


def with_zeros() -> Inputs:
    logits, candidates = draw()
    logits[1:3] = 0
    return Inputs(logits, candidates)


def measure(cls: type[Algorithm], inputs: Inputs, prior: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return an algorithm's loss on the inputs, and the gradient that its step would use."""
    logits, candidates = inputs
    algorithm: Any = build_class(cls, candidates).to(logits.dtype)
    if prior is not None:
        algorithm.prior.copy_(prior)
    losses, gradient = evaluate(algorithm, logits, batch_of(candidates, logits))
    return losses["loss"], gradient


def assert_equal(entry: Departure, inputs: Inputs, prior: Tensor | None = None) -> None:
    """Demand that loss and gradient are the same on both sides."""
    both = (measure(cls, inputs, prior) for cls in (entry.ours, entry.theirs))
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs)


def build_class(cls: type[Algorithm], candidates: Tensor, **hparams: Any) -> Any:
    values = {p.name: p.default for p in cls.card.hyperparameters}
    shared = {"model": "MLP", "lr": 1e-3, "weight_decay": 0.0, "max_steps": 1000}
    hparams = {**shared, **values, "batch_size": len(candidates), **hparams}
    algorithm: Any = cls((len(candidates), 2), candidates.numpy(), hparams)
    algorithm.network = nn.Sequential()  # inputs are logits
    return algorithm


# Where the loss becomes infinite or not a number (or its gradient does); elsewhere both sides agree.
BREAKS = {
    "DirectABS_GCE": saturated,
    "PlainCC": saturated,
    "PlainForward": saturated,
    "DividingEXP": with_a_full_set,
    **{cls.__name__: without_pairs for cls in vanilla.WITHOUT_PAIRS},
}


@pytest.mark.parametrize("name", BREAKS)
def test_breaks_where_ours_is_finite(name: str) -> None:
    entry = BY_NAME[name]
    for value in measure(entry.ours, BREAKS[name]()):
        assert value.isfinite().all()
    assert not all(value.isfinite().all() for value in measure(entry.theirs, BREAKS[name]()))
    assert_equal(entry, draw())


# By how much the loss differs: a factor, a sum, or simply so.
SCALED = {"SummedABS_GCE": 6, "DerivedEXP": 12}


@pytest.mark.parametrize("name", SCALED)
def test_scale_only(name: str) -> None:
    entry = BY_NAME[name]
    for ours, theirs in zip(measure(entry.ours, draw()), measure(entry.theirs, draw()), strict=True):
        torch.testing.assert_close(SCALED[name] * ours, theirs)


@pytest.mark.parametrize("name", ["ReversedMCLGCE", "ReversedMCLMSE"])
def test_reversed_risk_raises_what_is_known_to_be_wrong(name: str) -> None:
    """Both agree only for sets of one label; in others the complementary losses push the other way."""
    entry = BY_NAME[name]
    logits, candidates = draw()
    single = Inputs(logits, torch.eye(K, dtype=torch.bool)[candidates.int().argmax(-1)])
    assert_equal(entry, single)
    # With all but one label candidates, the gradient of the complementary loss has the other sign.
    all_but_one = torch.ones(1, K, dtype=torch.bool)
    all_but_one[0, 1] = False
    one = Inputs(torch.zeros(1, K, dtype=torch.float64), all_but_one)
    ours, theirs = measure(entry.ours, one)[1], measure(entry.theirs, one)[1]
    assert ours[0, 1] > 0 > theirs[0, 1]


@pytest.mark.parametrize("name", ["FullSetMCLGCE", "FullSetMCLMSE"])
def test_full_sets_have_an_enormous_weight(name: str) -> None:
    entry = BY_NAME[name]
    assert measure(entry.theirs, with_a_full_set())[0] < -1e18
    assert measure(entry.ours, with_a_full_set())[0].abs() < 100


def test_masked_exponentials_have_no_slope_at_zero() -> None:
    entry = BY_NAME["MaskedLWS"]
    loss, gradient = measure(entry.ours, with_zeros())
    their_loss, theirs = measure(entry.theirs, with_zeros())
    assert loss == their_loss
    assert gradient[1:3].all()
    assert not theirs[1:3].any()
    torch.testing.assert_close(gradient[3:], theirs[3:])


def test_op_w_ignores_a_common_shift() -> None:
    entry = BY_NAME["ShiftedOP_W"]
    assert_equal(entry, draw())


def test_pc_against_itself_and_bare() -> None:
    (ours, gradient) = measure(BY_NAME["SelfPC"].ours, draw())
    loss, same = measure(BY_NAME["SelfPC"].theirs, draw())
    torch.testing.assert_close(loss, ours + (K - 1) / 2)
    torch.testing.assert_close(same, gradient)
    _, smaller = measure(BY_NAME["BarePC"].theirs, draw())
    torch.testing.assert_close(smaller * (K - 1), gradient)


def test_l_w_with_a_constant_is_near_but_not_exact() -> None:
    entry = BY_NAME["GuardedL_W"]
    ours, theirs = measure(entry.ours, draw())[0], measure(entry.theirs, draw())[0]
    assert 1e-7 < (ours - theirs).abs() < 1e-4


@pytest.mark.parametrize("name", ["WrongPriorNN", "WrongPriorGA"])
def test_wrong_prior_agrees_for_a_uniform_one_only(name: str) -> None:
    entry = BY_NAME[name]
    uniform, skewed = torch.full((K,), 1 / K), torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1])
    assert_equal(entry, draw(), uniform)
    assert not torch.isclose(measure(entry.ours, draw(), skewed)[0], measure(entry.theirs, draw(), skewed)[0])


def test_ga_in_a_step_of_ascent() -> None:
    """The report differs and so does, without n_k, the gradient; the factor is a number of pairs."""
    ours = BY_NAME["PaperGA"].ours
    loss, gradient = measure(ours, draw())
    assert measure(BY_NAME["ReportingGA"].theirs, draw())[0] != loss
    assert torch.equal(measure(BY_NAME["ReportingGA"].theirs, draw())[1], gradient)
    assert measure(BY_NAME["PaperGA"].theirs, draw())[0] == loss
    assert measure(BY_NAME["PaperGA"].theirs, draw())[1].norm() < gradient.norm() / 2


def measure_idgp(name: str | None, classes: int, scale: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return the classifier's loss after the warm-up, for sets of every label."""
    cls = BY_NAME["GuardedIDGP"].ours if name is None else BY_NAME[name].theirs
    candidates = torch.ones(3, classes, dtype=torch.bool)
    algorithm = build_class(cls, candidates, warm_up_epoch=0).to(dtype)
    at_step(algorithm, 100)
    generator = torch.Generator().manual_seed(0)
    f, g = (scale * torch.randn(3, classes, generator=generator, dtype=dtype) for _ in range(2))
    losses, _ = evaluate(algorithm, (f, g - 4), batch_of(candidates, f))
    return losses["loss"]


def test_idgp_weights_from_products() -> None:
    """They vanish for large sets with the constant and are not numbers without; on small sets all agree."""
    small, large = measure_idgp(None, 2, 1.0), measure_idgp(None, 40, 1.0)
    torch.testing.assert_close(measure_idgp("GuardedIDGP", 2, 1.0), small, rtol=1e-8, atol=0)
    torch.testing.assert_close(measure_idgp("ProductIDGP", 2, 1.0), small)
    assert measure_idgp("GuardedIDGP", 40, 1.0) < 0.9 * large
    assert measure_idgp("ProductIDGP", 40, 1.0, torch.float32).isnan()
    assert measure_idgp(None, 40, 1.0, torch.float32).isfinite()


def test_idgp_constants_count_near_saturation() -> None:
    near = measure_idgp("ConstantsIDGP", 5, 1.0)
    torch.testing.assert_close(near, measure_idgp(None, 5, 1.0), rtol=1e-5, atol=0)
    assert measure_idgp("ConstantsIDGP", 5, 60.0) < 0.9 * measure_idgp(None, 5, 60.0)


def test_dirk_target_vanishes_with_a_tiny_mass_of_non_candidates() -> None:
    """At a mass of 1e-26 the constant takes their share away; at one of 0.1 it does nothing."""
    sets = torch.tensor([[True, False, False]])
    for lead, equal in ((60.0, False), (2.0, True)):
        teacher = torch.tensor([[lead, 0.0, -1.0]], dtype=torch.float64)
        logits = torch.zeros(1, 3, dtype=torch.float64)
        outputs = (torch.zeros(0), teacher, torch.zeros(0), logits)
        losses = []
        for cls in (BY_NAME["GuardedDIRK"].ours, BY_NAME["GuardedDIRK"].theirs):
            algorithm = build_class(cls, sets, weight=0.0, feat_dim=4, moco_queue=4)
            losses.append(float(algorithm.losses(outputs, batch_of(sets, logits))["loss"]))
        # The target sums to 1, so that the cross entropy of a uniform prediction is log 3.
        assert losses[0] == pytest.approx(np.log(3))
        assert (losses[1] == pytest.approx(np.log(3))) == equal


@pytest.mark.parametrize("name", ["RatioGFWS", "RatioPaPi", "RatioCEL"])
def test_a_ratio_of_probabilities_breaks_where_they_underflow(name: str) -> None:
    """Ours is finite there; elsewhere both agree."""
    entry = BY_NAME[name]

    def find_targets(cls: type[Algorithm], inputs: Inputs) -> Tensor:
        logits, candidates = inputs
        algorithm = build_class(cls, candidates).to(logits.dtype)
        batch = batch_of(candidates, logits)
        if name == "RatioGFWS":
            return algorithm.losses(torch.stack([logits, logits]), batch)["loss_em"]
        if name == "RatioCEL":
            algorithm.revise(logits[None], batch)
            return algorithm.confidence
        return algorithm.move_confidence(batch, logits)

    torch.testing.assert_close(find_targets(entry.ours, draw()), find_targets(entry.theirs, draw()))
    assert find_targets(entry.ours, saturated()).isfinite().all()
    assert find_targets(entry.theirs, saturated()).isnan().any()


def test_gfws_pushes_less_than_the_papers_derivation() -> None:
    """Π (1 − p_k) is at least 1 − Σ p_k; for a single non-candidate both are the same."""
    logits, candidates = draw()
    views = torch.stack([logits, logits])
    for sets, equal in ((candidates, False), (torch.arange(K).expand(6, K) > 0, True)):
        ours, theirs = (
            build_class(cls, sets).double().losses(views, batch_of(sets, logits))
            for cls in (BY_NAME["PaperGFWS"].ours, BY_NAME["PaperGFWS"].theirs)
        )
        assert ours["loss_em"] == theirs["loss_em"]
        same = pytest.approx(float(theirs["loss_sup"]), rel=1e-5)
        assert (float(ours["loss_sup"]) == same) == equal
        assert equal or ours["loss_sup"] < theirs["loss_sup"]


def test_scarce_with_one_complementary_label() -> None:
    """It agrees where there is only one."""
    entry = BY_NAME["OneLabelSCARCE"]
    logits, candidates = draw()
    assert ((~candidates).sum(-1) > 1).any()
    assert measure(entry.ours, draw())[0] != measure(entry.theirs, draw())[0]
    single = Inputs(logits, torch.eye(K)[torch.arange(6) % K] == 0)
    assert_equal(entry, single)


def build_records(name: str | None, candidates: Tensor) -> Any:
    cls = BY_NAME["GuardedRECORDS"].ours if name is None else BY_NAME[name].theirs
    return build_class(cls, candidates, upd_start=0, batch_size=1).double()


def test_records_pushes_a_candidate_that_underflowed() -> None:
    """And only then: with confidence on every candidate both agree."""
    logits, candidates = draw()
    batch, prior = batch_of(candidates, logits), torch.zeros(1, K, dtype=torch.float64)
    outputs = (torch.stack([logits, logits]), prior)
    for lost in (False, True):
        losses = []
        for name in (None, "UnderflowRECORDS"):
            algorithm = build_records(name, candidates)
            algorithm.confidence[0, 0] *= not lost
            losses.append(float(algorithm.losses(outputs, batch)["loss_sup"]))
        assert (losses[0] == pytest.approx(losses[1])) != lost


def test_records_target_loses_weight_where_both_views_exclude_the_candidates() -> None:
    sets = torch.tensor([[False, True, True]])
    for lead, whole in ((40.0, False), (1.0, True)):
        logits = torch.tensor([[[lead, 0.0, 0.0]]] * 2, dtype=torch.float64)
        sums = []
        for name in (None, "GuardedRECORDS"):
            algorithm = build_records(name, sets)
            prior = torch.zeros(1, 3, dtype=torch.float64)
            algorithm.revise((logits, prior), batch_of(sets, logits[0]))
            sums.append(float(algorithm.confidence.sum()))
        assert sums[0] == pytest.approx(1)
        assert (sums[1] == pytest.approx(1)) == whole


def test_vipll_samples_estimate_the_exact_expectations() -> None:
    """The mean over many draws of ten samples is what is computed exactly."""
    logits, candidates = draw()
    weights, likelihoods = candidates * 0.7, logits.flip(0)
    prior = torch.full((K,), 1 / K, dtype=torch.float64)
    torch.manual_seed(0)
    drawn = [frontier.sample_terms(logits, weights, likelihoods, prior) for _ in range(4000)]
    exact = frontier.vipll.infer_terms(logits, weights, likelihoods, prior)
    for estimates, expected in zip(zip(*drawn, strict=True), exact, strict=True):
        values = torch.stack(estimates)
        assert abs(values.mean() - expected) < 4 * values.std() / len(drawn) ** 0.5 + 1e-12
    assert "SampledVIPLL" in BY_NAME


def build_cel(cls: type[Algorithm], candidates: Tensor) -> Any:
    return build_class(cls, candidates, embed_dim=3).double()


def test_cel_prototypes_become_one_vector() -> None:
    logits, candidates = draw()
    generator = torch.Generator().manual_seed(1)
    outputs = torch.cat([logits, torch.randn(6, 3 * K, generator=generator, dtype=torch.float64)], -1)[None]
    batch, entry = batch_of(candidates, logits), BY_NAME["OneVectorCEL"]
    ours, theirs = build_cel(entry.ours, candidates), build_cel(entry.theirs, candidates)
    for algorithm in (ours, theirs):
        algorithm.losses(outputs, batch)
    predicted = ours.prototypes.norm(dim=-1) > 0
    assert predicted.sum() > 1
    assert torch.equal(predicted, theirs.prototypes.norm(dim=-1) > 0)
    assert len(theirs.prototypes[predicted].unique(dim=0)) == 1
    assert len(ours.prototypes[predicted].unique(dim=0)) == predicted.sum()


def test_cel_takes_a_label_outside_the_set_where_candidates_have_negative_logits() -> None:
    sets = torch.tensor([[False, True, True]])
    for best, escapes in ((-1.0, True), (3.0, False)):
        logits = torch.tensor([[0.0, best, -2.0]], dtype=torch.float64)
        outputs = torch.cat([logits, torch.ones(1, 9, dtype=torch.float64)], -1)[None]
        moved = []
        for cls in (BY_NAME["EscapingCEL"].ours, BY_NAME["EscapingCEL"].theirs):
            algorithm = build_cel(cls, sets)
            algorithm.losses(outputs, batch_of(sets, logits))
            moved.append(algorithm.prototypes.norm(dim=-1).argmax().item())
        assert moved == [1, 0 if escapes else 1]


# Revisions ------------------------------------------------------------------------------------------------


def revise(cls: type[Algorithm], *batches: Tensor, candidates: Tensor) -> Tensor:
    """Return the confidence after revisions from these logits."""
    algorithm = build_class(cls, candidates)
    for logits in batches:
        algorithm.revise(logits, batch_of(candidates, logits))
    return algorithm.confidence


def test_proden_divided_by_an_underflow() -> None:
    entry, sets = BY_NAME["DividingPRODEN"], torch.tensor([[False, True, True]])
    far = torch.tensor([[300.0, 0.0, 0.0]])
    assert revise(entry.theirs, far, candidates=sets).isnan().any()
    assert revise(entry.ours, far, candidates=sets).tolist() == [[0, 0.5, 0.5]]


def test_proden_loses_a_candidate_by_underflow() -> None:
    entry, sets = BY_NAME["ForgetfulPRODEN"], torch.tensor([[False, True, True]])
    steps = torch.tensor([[0.0, 300.0, 0.0]]), torch.tensor([[0.0, 0.0, 0.0]])
    assert revise(entry.theirs, *steps, candidates=sets).tolist() == [[0, 1, 0]]
    assert revise(entry.ours, *steps, candidates=sets).tolist() == [[0, 0.5, 0.5]]


def test_cavl_leaves_the_set_where_candidates_have_negative_logits() -> None:
    entry, sets = BY_NAME["EscapingCAVL"], torch.tensor([[False, True, True], [False, True, True]])
    logits = torch.tensor([[0.0, -1.0, -2.0], [0.0, 3.0, -2.0]])
    assert revise(entry.theirs, logits, candidates=sets).argmax(-1).tolist() == [0, 1]
    assert revise(entry.ours, logits, candidates=sets).argmax(-1).tolist() == [1, 1]


# Runs -----------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Hyperparameters of a run, and its first update whose loss differs."""

    hparams: dict[str, Any]
    differs_from: int
    images: bool = False
    batch_size: int = 16


SMALL = {"feat_dim": 8, "moco_queue": 40}
QUICK_POP = {"warm_up": 0, "rollWindow": 2, "theta": 0.9}
QUICK_VALEN = {"warm_up": 4}
QUICK_ALIM = {**SMALL, "prot_start": 0, "start_epoch": 1}
QUICK_PICO_PLUS = {**SMALL, "prot_start": 3, "knn_start": 6, "pure_ratio": 0.6}
QUICK_FREDIS = {"update_interval": 1, "theta": 0.3, "dec": 0.05, "inc": 0.05, "change_size": 30}
EMPTYING = {"update_interval": 1, "theta": 0.0, "delta": 0.05, "times": 1, "change_size": 1000}
RUNS: dict[str, Run] = {
    # Targets of the first epoch are read in the second, from update 4 on.
    "SecondPassPRODEN": Run({}, 4),
    "SecondPassPOP": Run(QUICK_POP, 4),
    "SecondPassCRDPLL": Run({}, 4),
    # The end of the first epoch purifies; at this lower threshold the third is the first that removes any.
    "HastyPOP": Run(QUICK_POP, 4),
    "UndonePOP": Run({**QUICK_POP, "theta": 0.1}, 12),
    # The warm-up ends after two epochs.
    "EarlyIDGP": Run({"warm_up_epoch": 2}, 8),
    "MisreadABLE": Run({"feat_dim": 8}, 0),
    # The consistency has no weight at first.
    "ThreeViewCRDPLL": Run({}, 1),
    "EpochCRDPLL": Run({}, 1),
    # Update 4 starts an epoch, where both have the same φ.
    "EpochPiCO": Run({**SMALL, "prot_start": 4}, 5),
    "RandomQueueDIRK": Run({**SMALL, "prot_start": 1}, 1),
    # The main phase begins with update 4; an optimiser's first step shows in the next loss.
    "FrozenVALEN": Run(QUICK_VALEN, 5),
    "SgdVALEN": Run(QUICK_VALEN, 5),
    "OwnEncoderVALEN": Run(QUICK_VALEN, 4),
    "RawGraphVALEN": Run(QUICK_VALEN, 4),
    "FullReconstructionVALEN": Run(QUICK_VALEN, 4),
    "TrainingModeVALEN": Run(QUICK_VALEN, 4, images=True),
    "StoppedALIM": Run({**QUICK_ALIM, "prot_start": 3, "noise_rate": 0.3}, 3),
    # Epochs of 64/15 updates; the first step of the second is 5, the first whole number of epochs 64.
    "FractionALIM": Run({**QUICK_ALIM, "noise_rate": 0.3}, 5, batch_size=15),
    "UncappedALIM": Run({**QUICK_ALIM, "noise_rate": 0.9}, 4),
    "ClosedALIM": Run({**QUICK_ALIM, "noise_rate": 0.5}, 4),
    "LukewarmALIM": Run({**QUICK_ALIM, "noise_rate": 0.1}, 4),
    "InstanceALIM": Run({**SMALL, "prot_start": 3}, 0),
    "SmallestMarginALIM": Run({**QUICK_ALIM, "noise_rate": 0.0}, 6),
    "StoppedPiCOPlus": Run(QUICK_PICO_PLUS, 3),
    "RestlessPiCOPlus": Run(QUICK_PICO_PLUS, 3),
    # Update 0 starts an epoch, where both have the same schedules.
    "EpochPaPi": Run({"feat_dim": 8}, 1),
    "ThreeViewGFWS": Run({}, 0, images=True),
    # The warm-up of one epoch does without targets.
    "UnsharpenedCroSel": Run({"warm_up": 1, "sharpen_T": 0.5}, 4),
    # The main phase begins with update 13 of 40; σ enters the loss there.
    "SampledVIPLL": Run({}, 13),
    "AllLabelsVIPLL": Run({}, 13),
    "LateSigmaVIPLL": Run({}, 13),
    # The correction at the end of step 4 shows in step 5.
    "UnusedFREDIS": Run(QUICK_FREDIS, 5),
    "HastyFREDIS": Run(QUICK_FREDIS, 1),
    "OneViewFREDIS": Run(QUICK_FREDIS, 0),
}
# Runs that become NaN there, and stay so.
NAN_RUNS = {
    "NanPiCOPlus": Run({**QUICK_PICO_PLUS, "pure_ratio": 1.0}, 3),
    "EmptyFREDIS": Run(EMPTYING, 6),
}


def losses_of(cls: type[Algorithm], run: Run, updates: int = 20) -> np.ndarray:
    """Return the losses of a run on 64 examples: an epoch of four updates."""
    entry = AlgorithmEntry(cls.card.name, cls, cls.card, spec=cls.card.name)
    dataset = make_examples(64, sets="ambiguous", images=run.images)
    session = AlgorithmUnderTest(entry).start(dataset, batch_size=run.batch_size, hparams=run.hparams)
    return np.array(session.update(updates))


@pytest.mark.parametrize("name", [*RUNS, *NAN_RUNS])
def test_run_differs_or_breaks_from_there_on(name: str) -> None:
    entry, run = BY_NAME[name], {**RUNS, **NAN_RUNS}[name]
    ours, theirs = losses_of(entry.ours, run), losses_of(entry.theirs, run)
    first = run.differs_from
    assert np.array_equal(ours[:first], theirs[:first])
    assert np.isfinite(ours).all()
    if name in NAN_RUNS:
        assert np.isnan(theirs[first:]).all()
    else:
        assert abs(ours[first] - theirs[first]) > 1e-7
        assert np.isfinite(theirs).all()


def test_every_switch_is_shown() -> None:
    """A switch without a test above would be a claim only."""
    text = (ROOT / "tests" / "algorithms" / "test_departures.py").read_text(encoding="utf-8")
    shown = {*BREAKS, *SCALED, *RUNS, *NAN_RUNS}
    assert all(name in shown or f'"{name}"' in text for name in BY_NAME)
