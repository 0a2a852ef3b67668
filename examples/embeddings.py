"""Embeddings of another model: a matrix in an .npy file, which stays on disk however large it is.

python examples/embeddings.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "embeddings")
folder.mkdir(exist_ok=True)

# One folder: features.npy with candidates.npy (or answers.npy), and perhaps labels.npy and class_names.npy.
random = np.random.default_rng(0)
labels = random.integers(0, 3, 2000)
centres = random.normal(size=(3, 64))
np.save(folder / "features.npy", (centres[labels] + random.normal(size=(2000, 64))).astype(np.float32))
answers = np.where(random.random((2000, 4)) < 0.7, labels[:, None], random.integers(0, 3, (2000, 4)))
answers[random.random((2000, 4)) < 0.3] = -1  # gaps: not everybody saw everything
np.save(folder / "answers.npy", answers)
np.save(folder / "labels.npy", labels)
np.save(folder / "class_names.npy", np.array(["anger", "joy", "surprise"]))

# plench train -a PRODEN -d embeddings/features.npy --candidate-weights votes
outcome = plench.train(
    "PRODEN", folder / "features.npy", folder / "runs", steps=200, candidate_weights="votes", progress=False
)
predicted = plench.load(outcome.folder).predict(np.load(folder / "features.npy")[:5])
print(list(predicted), [["anger", "joy", "surprise"][label] for label in labels[:5]])
