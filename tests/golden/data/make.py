"""Makes the data of the golden runs: `python tests/golden/data/make.py`. Its files are kept, not made again.

All have five classes; two have candidates of their own, with a few sets without the true label, and one has
the answers of four annotators.
"""

from pathlib import Path

import numpy as np

CLASSES = 5
FOLDER = Path(__file__).parent


def draw_candidates(labels: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Add each wrong label with probability 0.3, then take the true one from every tenth set."""
    candidates = random.rand(len(labels), CLASSES) < 0.3
    candidates[np.arange(len(labels)), labels] = True
    wrong = np.arange(0, len(labels), 10)
    candidates[wrong, (labels[wrong] + 1) % CLASSES] = True
    candidates[wrong, labels[wrong]] = False
    return candidates


def make_tabular(random: np.random.RandomState, n: int = 100, width: int = 8) -> None:
    """Write clusters around a random centre for each class; no test set of their own."""
    labels = random.randint(0, CLASSES, n)
    features = random.randn(CLASSES, width)[labels] + 0.7 * random.randn(n, width)
    np.savez_compressed(
        FOLDER / "tabular.npz",
        features=features.astype(np.float32),
        candidates=draw_candidates(labels, random),
        labels=labels,
    )


def make_images(random: np.random.RandomState, n: int = 90, n_test: int = 20, side: int = 16) -> None:
    """Write coloured images of 3×16×16 whose hue and bright quarter tell the class, with a test set."""
    colours = random.randint(40, 200, (CLASSES, 3))

    def draw(labels: np.ndarray) -> np.ndarray:
        images = np.broadcast_to(colours[labels][:, :, None, None], (len(labels), 3, side, side)).copy()
        images[:, :, : side // 2, : side // 2] += (10 * labels)[:, None, None, None]
        images += 16 * random.randint(-3, 4, (len(labels), 1, side, side))
        return images.clip(0, 255).astype(np.uint8)

    labels, test_labels = random.randint(0, CLASSES, n), random.randint(0, CLASSES, n_test)
    np.savez_compressed(
        FOLDER / "images.npz",
        images=draw(labels),
        candidates=draw_candidates(labels, random),
        labels=labels,
        test_images=draw(test_labels),
        test_labels=test_labels,
    )


def make_answered(random: np.random.RandomState, n: int = 100, width: int = 8) -> None:
    """Write clusters with the answers of four annotators, each worse than the one before, with gaps."""
    labels = random.randint(0, CLASSES, n)
    features = random.randn(CLASSES, width)[labels] + 0.7 * random.randn(n, width)
    wrong = random.rand(n, 4) < np.array([0.1, 0.2, 0.3, 0.5])
    answers = np.where(wrong, random.randint(0, CLASSES, (n, 4)), labels[:, None])
    answers[:, 1:][random.rand(n, 3) < 0.3] = -1
    np.savez_compressed(
        FOLDER / "answered.npz", features=features.astype(np.float32), answers=answers, labels=labels
    )


if __name__ == "__main__":
    make_tabular(np.random.RandomState(1))
    make_images(np.random.RandomState(2))
    make_answered(np.random.RandomState(3))
