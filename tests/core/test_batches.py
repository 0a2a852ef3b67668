import torch

from plench.algorithms import Batch
from plench.training.data import BatchStream

CPU = torch.device("cpu")


def stream(n, batch_size, seed=0):
    return BatchStream(n, batch_size, torch.Generator().manual_seed(seed), CPU)


def test_an_epoch_visits_no_example_twice_and_drops_the_short_batch():
    batches = stream(10, 3)
    for _ in range(5):
        epoch = torch.cat([batches.next() for _ in range(3)])
        assert len(set(epoch.tolist())) == 9


def test_the_order_is_drawn_again_every_epoch():
    batches = stream(100, 100)
    assert batches.next().tolist() != batches.next().tolist()


def test_fewer_examples_than_a_batch_give_all_of_them():
    assert sorted(stream(5, 128).next().tolist()) == [0, 1, 2, 3, 4]


def test_a_batch_unpacks_into_the_papers_six_without_labels():
    features = torch.ones(2, 3)
    candidates = torch.tensor([[True, False], [True, True]])
    batch = Batch(torch.tensor([4, 1]), candidates, {"weak": features})
    original, weak, strong, given, labels, index = batch
    assert original is None
    assert strong is None
    assert labels is None
    assert weak is features
    assert given.dtype == torch.float32
    assert given.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert index.tolist() == [4, 1]
