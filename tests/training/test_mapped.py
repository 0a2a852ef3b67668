"""Features that stay in their file give, to the last bit, what features in memory give."""

from pathlib import Path

import numpy as np
import pytest
import torch

from plench.data import Dataset, load_dataset
from plench.training.data import GatheredRows, TabularInputs, is_mapped, measure_columns

CPU = torch.device("cpu")


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 16, 129])
@pytest.mark.parametrize("rows", [1, 2, 130, 10_001])
def test_mean_and_deviation_are_numpys_to_the_last_bit(columns: int, rows: int, monkeypatch) -> None:
    monkeypatch.setattr("plench.training.data.CHUNK_BYTES", 8 * columns * 1000)
    random = np.random.RandomState(columns)
    features = (random.standard_normal((rows, columns)) * 10.0 ** random.randint(-3, 4, columns)).astype("f4")
    order = random.permutation(rows)[: max(1, rows - 10)]
    mean, std = measure_columns(features, order)
    whole = features[order]
    assert np.array_equal(mean, whole.mean(0, dtype=np.float64))
    assert np.array_equal(std, whole.std(0, dtype=np.float64))


def test_mapped_features_stay_mapped_and_equal(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    features = random.standard_normal((500, 12)).astype(np.float32)
    np.save(tmp_path / "features.npy", features)
    np.save(tmp_path / "candidates.npy", random.rand(500, 4) < 0.9)
    np.save(tmp_path / "labels.npy", random.randint(0, 4, 500))
    dataset = load_dataset(str(tmp_path / "features.npy"))
    assert isinstance(dataset, Dataset)
    assert dataset.fingerprint == load_dataset(str(tmp_path)).fingerprint
    assert is_mapped(dataset.features)
    assert not is_mapped(features)
    train = random.permutation(500)[:400]
    inputs = TabularInputs.fit(dataset.features, train)
    in_memory = TabularInputs.fit(features, train)
    stored, tensor = inputs.store(dataset.features, CPU, train), in_memory.store(features, CPU, train)
    assert isinstance(stored, GatheredRows)
    assert isinstance(tensor, torch.Tensor)
    index = torch.from_numpy(random.permutation(400)[:64])
    assert torch.equal(stored.index_select(0, index), tensor.index_select(0, index))
    assert torch.equal(stored[10:30], tensor[10:30])
    assert tuple(stored.shape) == tuple(tensor.shape)
    everything = inputs.store(dataset.features, CPU)
    assert torch.equal(everything[:], in_memory.store(features, CPU)[:])
