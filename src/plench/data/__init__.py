"""Datasets for partial-label learning: types, sources, candidate generators and splits.

The names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.data.candidates import CandidateSpec as CandidateSpec
    from plench.data.candidates import choose_candidates as choose_candidates
    from plench.data.candidates import draw_candidates as draw_candidates
    from plench.data.dataset import Dataset as Dataset
    from plench.data.dataset import DatasetCard as DatasetCard
    from plench.data.dataset import Published as Published
    from plench.data.dataset import Sizes as Sizes
    from plench.data.dataset import TestSet as TestSet
    from plench.data.download import download_dataset as download_dataset
    from plench.data.sources import as_dataset as as_dataset
    from plench.data.sources import dataset_card as dataset_card
    from plench.data.sources import dataset_names as dataset_names
    from plench.data.sources import describe_datasets as describe_datasets
    from plench.data.sources import load_dataset as load_dataset
    from plench.data.sources.arrays import make_dataset as make_dataset
    from plench.data.sources.tables import make_table_dataset as make_table_dataset
    from plench.data.splits import Split as Split
    from plench.data.splits import split_dataset as split_dataset
    from plench.data.views.sheet import draw_sheet as draw_sheet

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
