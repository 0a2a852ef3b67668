"""Real images for tests: CIFAR-10 where it is at hand, else patches of scikit-learn's two photographs."""

import io
from functools import cache

import numpy as np

from tests.conftest import real_data_dir


@cache
def real_images(count: int = 64) -> np.ndarray:
    """Return uint8 images (count, 3, 32, 32)."""
    from PIL import Image

    folder = real_data_dir()
    path = None if folder is None else folder / "cifar10" / "cifar10_jpeg.npz"
    if path is not None and path.exists():
        with np.load(path) as store:
            jpeg, offsets = store["jpeg"], store["offsets"]
        decoded = [
            np.asarray(Image.open(io.BytesIO(jpeg[offsets[i] : offsets[i + 1]].tobytes())).convert("RGB"))
            for i in range(count)
        ]
        return np.ascontiguousarray(np.stack(decoded).transpose(0, 3, 1, 2))
    from sklearn.datasets import load_sample_images

    patches = []
    for photograph in load_sample_images().images:
        shrunk = np.asarray(Image.fromarray(photograph).resize((320, 213)))
        patches += [shrunk[y : y + 32, x : x + 32] for y in range(0, 181, 32) for x in range(0, 288, 32)]
    return np.ascontiguousarray(np.stack(patches[:count]).transpose(0, 3, 1, 2))
