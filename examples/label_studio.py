"""An export of Label Studio: annotators who disagree or skip, gold labels, and a model's predictions.

python examples/label_studio.py [FOLDER]

The export is read as it is. Several choices are a candidate set, gold labels are for evaluation only.
"""

import json
import sys
from pathlib import Path

import numpy as np

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "label_studio")
folder.mkdir(exist_ok=True)

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

# plench data info 'export.json?predictions=no'
export = f"{folder / 'export.json'}?predictions=no"  # the model guesses: its predictions are left out
dataset = plench.Dataset.load(export)
print(f"{dataset.n_examples} tasks, {len(dataset.answers.item)} answers of {dataset.answers.annotator_names}")
print(f"{dataset.mean_candidates:.2f} candidates on average, classes {dataset.class_names}")

# plench train -a PRODEN -d 'export.json?predictions=no' --steps 300
outcome = plench.train("PRODEN", export, folder / "runs", steps=300, checkpoint_freq=100)
model = plench.load(outcome.folder)
print(model.predict({"text": ["lovely, thank you so much", "broken again, i want a refund"]}))
