"""Annotators who disagree: their answers become candidate sets, their votes weights.

python examples/annotators.py [FOLDER]

No true label is used anywhere: the criterion CR chooses among algorithms and configurations.
"""

import sys
from pathlib import Path

import numpy as np

import plench
from plench.data import make_table_dataset
from plench.data.answers import describe_answers

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "annotators")
folder.mkdir(exist_ok=True)

# Two tables: items with features, and answers, one per row. An answer is a label, a set, "not x" or "unsure".
random = np.random.default_rng(0)
genres = ["jazz", "pop", "rock"]
items, answers = ["item,tempo,volume"], ["item,annotator,label"]
for number in range(500):
    truth = random.integers(3)
    items.append(f"song{number},{truth + random.normal(0, 0.4):.3f},{random.normal():.3f}")
    for annotator in ("ann", "bob", "cyd"):
        label = truth if random.random() < 0.75 else random.integers(3)
        answer = random.choice(
            [genres[label], f"{genres[label]}|{genres[label - 1]}", "unsure"], p=[0.8, 0.1, 0.1]
        )
        answers.append(f"song{number},{annotator},{answer}")
(folder / "songs.csv").write_text("\n".join(items))
(folder / "answers.csv").write_text("\n".join(answers))
songs = f"{folder / 'songs.csv'}?answers=answers.csv"

# plench data info 'songs.csv?answers=answers.csv'
stats = describe_answers(make_table_dataset(folder / "songs.csv", answers="answers.csv").answers)
print(f"{stats['n_answers']} answers, {stats['agreement']:.0%} of the pairs agree")

# plench sweep launch --algorithms CC PRODEN --datasets 'songs.csv?answers=answers.csv' …
plench.sweep(
    ["CC", "PRODEN"],
    songs,
    folder / "runs",
    n_hparams=2,
    n_trials=2,
    steps=150,
    checkpoint_freq=50,
    candidate_weights="votes",
    progress=False,
)
print(plench.collect(folder / "runs"))

# plench sweep refit runs -d 'songs.csv?answers=answers.csv': what CR chose, trained on every item.
outcome = plench.refit(folder / "runs", songs, folder / "refit", progress=False)
print(plench.load(outcome.folder).predict({"tempo": [0.1, 1.9], "volume": [0.0, 0.0]}))
