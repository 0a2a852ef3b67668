"""EmotionLines: utterances of the series Friends with five votes each; the truth is MELD's.

MELD labelled the same scenes anew. Utterances are matched by text and speaker, reduced to letters and digits;
those whose key is not unique on both sides are left out.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from plench.data.answers import spread_votes
from plench.data.dataset import Sizes, TestSet
from plench.data.sources.crowd import CrowdArrays, make_source, make_text_table, on_github
from plench.data.tables import parse_table
from plench.errors import DataError
from plench.text import short_repr

EMOTIONS = ("neutral", "joy", "sadness", "fear", "anger", "surprise", "disgust")  # as votes list them
ARCHIVE = "2018_EmotionX.zip"
PARTS = ("train", "dev", "test")
MAX_BYTES = 2**28  # of one file in the archive; the largest has 1.7 MB


class Utterance(NamedTuple):
    """What was said, in which part of the release, its key for matching, and its votes by emotion."""

    part: str
    text: str
    key: tuple[str, str]
    votes: list[int]


def make_key(text: str, speaker: str) -> tuple[str, str]:
    """Reduce text and speaker to lower-case ASCII letters and digits."""
    return re.sub("[^a-z0-9]", "", text.lower()), re.sub("[^a-z0-9]", "", speaker.lower())


def read_utterances(archive: bytes, name: str) -> list[Utterance]:
    """Read the dialogues of Friends: lists of `{speaker, utterance, annotation}`."""
    found = []
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            for part in PARTS:
                member = opened.getinfo(f"friends.{part}.json")
                if member.file_size > MAX_BYTES:
                    raise ValueError(f"{member.filename} has {member.file_size:,} bytes")
                for dialogue in json.loads(opened.read(member)):
                    found += [read_utterance(entry, part) for entry in dialogue]
    except Exception as error:  # zipfile and malformed content raise many types
        raise DataError(f"{name}: {ARCHIVE} cannot be read ({type(error).__name__}: {error})") from None
    return found


def read_utterance(entry: Mapping[str, Any], part: str) -> Utterance:
    """Read one utterance; its annotation has a digit per emotion, the number of votes."""
    votes = [int(digit) for digit in entry["annotation"]]
    if len(votes) != len(EMOTIONS):
        raise ValueError(f"the annotation {short_repr(entry['annotation'])} must have {len(EMOTIONS)} digits")
    text = str(entry["utterance"])
    return Utterance(part, text.strip(), make_key(text, str(entry["speaker"])), votes)


def read_emotions(files: Mapping[str, bytes], name: str) -> dict[tuple[str, str], int]:
    """Read MELD's emotions by key, without keys that are not unique."""
    labels: dict[tuple[str, str], int] = {}
    times: Counter[tuple[str, str]] = Counter()
    for part in PARTS:
        table = parse_table(files[f"{part}_sent_emo.csv"], ".csv", f"{name}: {part}_sent_emo.csv")
        columns = ("Utterance", "Speaker", "Emotion")
        table.check_columns(columns)
        for row, (text, speaker, emotion) in enumerate(zip(*(table.frame[c] for c in columns), strict=True)):
            if emotion not in EMOTIONS:
                place, known = table.place(row, "Emotion"), ", ".join(EMOTIONS)
                raise DataError(f"{place}: unknown emotion {short_repr(emotion)}; expected one of {known}")
            labels[make_key(text, speaker)] = EMOTIONS.index(emotion)
            times[make_key(text, speaker)] += 1
    return {key: label for key, label in labels.items() if times[key] == 1}


def read_emotionlines(files: Mapping[str, bytes], name: str) -> CrowdArrays:
    """Match utterances with their true emotions; train and dev are for training, test is the test set."""
    utterances, truth = read_utterances(files[ARCHIVE], name), read_emotions(files, name)
    times = Counter(each.key for each in utterances)
    matched = [each for each in utterances if times[each.key] == 1 and each.key in truth]
    train = [each for each in matched if each.part != "test"]
    test = [each for each in matched if each.part == "test"]
    if not train or not test:
        raise DataError(f"{name}: no utterance of {ARCHIVE} is in the files of MELD ({len(matched)} match)")
    return (
        make_text_table([each.text for each in train]),
        np.array([truth[each.key] for each in train]),
        spread_votes(np.array([each.votes for each in train])),
        TestSet(make_text_table([each.text for each in test]), np.array([truth[each.key] for each in test])),
        EMOTIONS,
    )


EMOTIONLINES = make_source(
    "EmotionLines",
    (
        *on_github(
            "bshmueli/EmotionX-2019",
            "588143cdf7b8a7a33d7cfa959673a0df4c14601d",
            "",
            "emotionlines",
            {ARCHIVE: "688a72a72808ddd6f3823eff0108791922051267"},
        ),
        *on_github(
            "declare-lab/MELD",
            "2d2011b409d3ca2d7e94460cd007d434b1d0a102",
            "data/MELD",
            "emotionlines",
            {
                "train_sent_emo.csv": "b91dbd634693608a8e77a00d9256ae9cbb51bc43",
                "dev_sent_emo.csv": "91dd39cd4a10a53eda3c8aaf1955d3eae795ae52",
                "test_sent_emo.csv": "357d4a5f7ec119215622d07ed55fa3cad5d8d4c3",
            },
        ),
    ),
    "emotion of utterances in dialogues, with five votes each",
    "S.-Y. Chen, C.-C. Hsu, C.-C. Kuo, T.-H. Huang, L.-W. Ku. EmotionLines: an emotion corpus of multi-party "
    "conversations. LREC 2018. True labels: S. Poria, D. Hazarika, N. Majumder, G. Naik, E. Cambria, "
    "R. Mihalcea. MELD. ACL 2019.",
    Sizes(9_811, 1, len(EMOTIONS)),
    read_emotionlines,
    "EmotionLines: CC BY-NC-ND 4.0, not for redistribution in derived files; MELD: GPL-3",
    anonymous=True,
)
