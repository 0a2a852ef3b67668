"""Datasets for partial-label learning: types, sources, candidate generators and splits."""

from plench.data.candidates import Split, choose_candidates, draw_candidates, split_dataset
from plench.data.dataset import CandidateSpec, Dataset, DatasetCard, Published, Sizes, TestSet
from plench.data.sources import (
    as_dataset,
    dataset_card,
    dataset_names,
    describe_datasets,
    download_dataset,
    load_dataset,
)
from plench.data.sources.arrays import make_dataset
from plench.data.sources.tables import make_table_dataset

__all__ = [
    "CandidateSpec",
    "Dataset",
    "DatasetCard",
    "Published",
    "Sizes",
    "Split",
    "TestSet",
    "as_dataset",
    "choose_candidates",
    "dataset_card",
    "dataset_names",
    "describe_datasets",
    "download_dataset",
    "draw_candidates",
    "load_dataset",
    "make_dataset",
    "make_table_dataset",
    "split_dataset",
]
