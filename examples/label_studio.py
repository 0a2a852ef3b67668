"""An export of Label Studio.

Annotators disagree or skip tasks; some tasks have a gold label and a model's prediction. The export is read
as it is: several choices are a candidate set, and gold labels are for evaluation only.

    python examples/label_studio.py [FOLDER]
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "label_studio")
folder.mkdir(exist_ok=True)

# %%
# What "Export → JSON" writes, without the fields that are not read.
random = np.random.default_rng(0)
words = {"praise": "lovely great thank", "complaint": "broken late refund", "question": "when how where"}


def annotate(person, labels, **more):
    """Return an annotation, or what a prediction has in common with one."""
    result = [{"from_name": "intent", "to_name": "text", "type": "choices", "value": {"choices": labels}}]
    return {"completed_by": {"id": len(person), "email": person}, "result": result, **more}


tasks = []
for number in range(240):
    truth = str(random.choice(list(words)))
    text = " ".join([*random.choice(words[truth].split(), 3), "about", "order", str(number)])
    other, skipped = str(random.choice(list(words))), number % 9 == 0
    annotations = [
        annotate("ann@example.org", [truth] if random.random() < 0.8 else sorted({truth, other})),
        annotate("bob@example.org", [truth if random.random() < 0.7 else other], was_cancelled=skipped),
    ]
    if number % 4 == 0:
        annotations.append(annotate("lead@example.org", [truth], ground_truth=True))
    prediction = {"model_version": "rules-1", **annotate("", [other])}
    tasks.append(
        {"id": number, "data": {"text": text}, "annotations": annotations, "predictions": [prediction]}
    )
(folder / "export.json").write_text(json.dumps(tasks))

# %%
# The predictions in the export are guesses, so they are left out. On the command line:
# `plench data info 'export.json?predictions=no'`.
export = f"{folder / 'export.json'}?predictions=no"
dataset = plench.Dataset.load(export)
print(f"{dataset.n_examples} tasks, {len(dataset.answers.item)} answers of {dataset.answers.annotator_names}")
print(f"{dataset.mean_candidates:.2f} candidates on average, classes {dataset.class_names}")

# %%
# On the command line: `plench train -a PRODEN -d 'export.json?predictions=no' --steps 300`.
outcome = plench.train("PRODEN", export, folder / "runs", steps=300, checkpoint_freq=100, progress=False)
model = plench.load(outcome.folder)
print(model.predict({"text": ["lovely, thank you so much", "broken again, i want a refund"]}))

# %%
# Picture: a table of three classes by three, shaded by its counts. A square of the diagonal counts the tasks
# with a class among their candidates; the other squares, far paler, those with two classes among them.
together = dataset.candidates.astype(int).T @ dataset.candidates
fig, axes = plt.subplots(figsize=(4.3, 3.9), layout="constrained")
axes.imshow(together, cmap="Blues", vmin=0, vmax=1.6 * together.max())
for row, column in np.ndindex(together.shape):
    axes.text(column, row, together[row, column], ha="center", va="center")
ticks = range(len(dataset.class_names))
axes.set(xticks=ticks, xticklabels=dataset.class_names, yticks=ticks, yticklabels=dataset.class_names)
axes.set(xlabel="candidate", ylabel="candidate", title="Tasks that have both as candidates")
fig.savefig(folder / "label_studio.png", dpi=110)
