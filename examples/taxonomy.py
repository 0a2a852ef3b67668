"""Labels known only to their genus: a table of parents turns a node into the set of its leaves.

python examples/taxonomy.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "taxonomy")
folder.mkdir(exist_ok=True)

# Species are classes; what hangs above them may be a label too.
(folder / "tree.csv").write_text("node,parent\nlion,cats\ntiger,cats\nwolf,dogs\nfox,dogs\ncats,\ndogs,\n")
random = np.random.default_rng(0)
species = ["lion", "tiger", "wolf", "fox"]
rows = ["length,height,candidates"]
for _ in range(400):
    label = random.integers(4)
    length, height = (2.0, 2.6, 1.4, 0.7)[label], (1.1, 1.0, 0.8, 0.4)[label]
    name = species[label] if random.random() < 0.5 else ("cats" if label < 2 else "dogs")
    rows.append(f"{length + random.normal(0, 0.15):.3f},{height + random.normal(0, 0.1):.3f},{name}")
(folder / "sightings.csv").write_text("\n".join(rows))

# plench train -a CC -d 'sightings.csv?taxonomy=tree.csv'
data = f"{folder / 'sightings.csv'}?taxonomy=tree.csv"
outcome = plench.train("CC", data, folder / "runs", steps=300, progress=False)
print(plench.load(outcome.folder).predict({"length": [2.6, 0.7], "height": [1.0, 0.4]}))
