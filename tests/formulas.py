"""Formulas of the methods under the names of their specifications; no other test names them.

Losses, gradients, revisions and schedules are checked through `tests/probe.py`; what vectors list beyond that
is here, so that a function which moves or is renamed touches this file alone.
"""

from plench.algorithms.able import weigh_positives as able_positive_weights
from plench.algorithms.alim import choose_importance as alim_lambda
from plench.algorithms.cavl import activation_value as cavl_activation_value
from plench.algorithms.crdpll import consistency_weight as crdpll_lambda
from plench.algorithms.dirk import find_affinities as dirk_affinities
from plench.algorithms.dirk import rectify as dirk_rectified
from plench.algorithms.fredis import largest_but as fredis_needed_gap
from plench.algorithms.fredis import lower_delta as fredis_delta
from plench.algorithms.idgp import believed_label as idgp_pseudo_label
from plench.algorithms.idgp import both_terms as idgp_terms
from plench.algorithms.idgp import kl_weight as idgp_lambda
from plench.algorithms.idgp import weigh_by_generator as idgp_weights_from_generator
from plench.algorithms.nn_ga import class_risks
from plench.algorithms.papi import similarity_ramp as papi_ramp
from plench.algorithms.parts.contrast import (
    BASE_TEMPERATURE,
    RingQueue,
    Similarities,
    compare,
    confidence_momentum,
    follow,
    mean_similarity_by_label,
    sum_by_label,
    update_prototypes,
)
from plench.algorithms.parts.targets import (
    agree_on_target,
    best_candidate,
    divergence_from_target,
    masked_softmax,
    soft_cross_entropy,
)
from plench.algorithms.pico_plus import guess_labels as pico_plus_guess
from plench.algorithms.pico_plus import mean_similarity_to_nearest as pico_plus_to_nearest
from plench.algorithms.pico_plus import select_reliable as pico_plus_reliable
from plench.algorithms.scarce import risks_against_rest as scarce_risks
from plench.algorithms.valen import build_decoder as valen_decoder
from plench.algorithms.valen import clamped_concentration as valen_alpha
from plench.algorithms.valen import concentrate as valen_concentration
from plench.algorithms.valen import divergence_from_uniform as valen_kl
from plench.algorithms.valen import find_nearest_rows as valen_neighbours
from plench.algorithms.valen import graph_block as valen_graph_block
from plench.algorithms.valen import reconstruct as valen_reconstruction
