"""Datasets with the answers of crowd workers: LabelMe (images as features), music, reviews, emotions.

Candidate sets are the unions of the answers, or the classes with at least m votes (`LabelMe_Crowd_Votes_2`).
All have test sets of their own.

EmotionLines has utterances of the series Friends with five votes each; the truth is that of MELD, which
labelled the same scenes anew. Utterances are matched by text and speaker, reduced to letters and digits;
those whose key is not unique on both sides are left out.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plench.data.answers import Answers, combine_answers, read_answer_matrix, spread_votes
from plench.data.dataset import Dataset, DatasetCard, Sizes, TestSet
from plench.data.readers import find_entry, read_array, read_file
from plench.data.sources.base import RemoteFile, Source, SourceFinder
from plench.data.tables import RawTable, Table, make_categories, make_column, parse_table
from plench.errors import DataError, UsageError
from plench.text import normalise, short_repr

LABELME_CLASSES = 8
POLARITIES = ("negative", "positive")
EMOTIONS = ("neutral", "joy", "sadness", "fear", "anger", "surprise", "disgust")  # as votes list them
ARCHIVE = "2018_EmotionX.zip"
PARTS = ("train", "dev", "test")
# Features, labels, answers, test set and names of classes.
CrowdArrays = tuple[NDArray[np.float32] | Table, NDArray[np.int64], Answers, TestSet, tuple[str, ...] | None]


def on_github(
    repository: str, commit: str, remote_folder: str, folder: str, files: Mapping[str, str]
) -> tuple[RemoteFile, ...]:
    """Return files of a repository by their git SHA-1, to be stored in `folder`."""
    base = f"https://raw.githubusercontent.com/{repository}/{commit}/{remote_folder}".rstrip("/")
    return tuple(RemoteFile(f"{base}/{file}", f"{folder}/{file}", sha1) for file, sha1 in files.items())


def read_numbers(files: Mapping[str, bytes], file: str, name: str) -> NDArray[np.int64]:
    """Return a text file of whole numbers as a matrix."""
    try:
        return np.loadtxt(io.BytesIO(files[file]), dtype=np.int64, ndmin=2, encoding="ascii")
    except (ValueError, OverflowError) as error:
        raise DataError(f"{name}: {file} cannot be read as whole numbers ({error})") from None


def make_text_table(texts: Sequence[str]) -> Table:
    """Return texts as a table with the column `text`."""
    return Table((make_categories("text", texts, "text"),))


def read_labelme(files: Mapping[str, bytes], name: str) -> CrowdArrays:
    """Read features, true labels and the matrix of answers, in which −1 is a gap."""

    def features(file: str) -> NDArray[np.float32]:
        return read_array(files[file], f"{name}: {file}")

    return (
        features("LabelMe_VGG_avg_train.npy"),
        read_numbers(files, "LabelMe_Z_train.txt", name).ravel(),
        read_answer_matrix(read_numbers(files, "answers.txt", name), LABELME_CLASSES, f"{name}: answers.txt"),
        TestSet(
            features("LabelMe_VGG_avg_test.npy"), read_numbers(files, "LabelMe_Z_test.txt", name).ravel()
        ),
        None,
    )


def read_sentiment(files: Mapping[str, bytes], name: str) -> CrowdArrays:
    """Read sentences, one per line, their true polarities and the matrix of answers, in which −1 is a gap."""

    def part(which: str) -> tuple[Table, NDArray[np.int64]]:
        lines = files[f"Sentiment_text_{which}.txt"].decode("utf-8", errors="replace").split("\n")
        texts = [line.strip() for line in (lines if lines[-1] else lines[:-1])]
        return make_text_table(texts), read_numbers(files, f"Sentiment_Z_{which}.txt", name).ravel()

    features, labels = part("train")
    matrix = read_numbers(files, "answers.txt", name)
    answers = read_answer_matrix(matrix, len(POLARITIES), f"{name}: answers.txt")
    return features, labels, answers, TestSet(*part("test")), POLARITIES


def read_music(files: Mapping[str, bytes], name: str) -> CrowdArrays:
    """Read songs with their true genres, and the workers' answers, one per row."""
    gold, mturk, test = (
        parse_table(files[f"music_genre_{part}.csv"], ".csv", f"{name}: music_genre_{part}.csv")
        for part in ("gold", "mturk", "test")
    )
    columns = [column for column in gold.columns if column.startswith("feature")]
    mturk.check_columns(("id", "class", "annotator"))
    for table in (gold, test):
        table.check_columns(("id", "class", *columns))
    genres = sorted(set(gold.complete("class")))

    def look_up(table: RawTable, column: str, known: Sequence[str]) -> NDArray[np.int64]:
        number = {text: position for position, text in enumerate(known)}
        texts = table.complete(column)
        if unknown := set(texts).difference(known):
            raise DataError(f"{table.name}: {column} {min(unknown)!r} is unknown in this dataset")
        return np.array([number[text] for text in texts])

    def part(table: RawTable) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        features = [make_column(table, column, "number").values for column in columns]
        return np.stack(features, axis=1), look_up(table, "class", genres)

    annotators, annotator = np.unique(mturk.complete("annotator"), return_inverse=True)
    answers = Answers(
        look_up(mturk, "id", gold.complete("id")),
        annotator,
        look_up(mturk, "class", genres)[:, None] == np.arange(len(genres)),
        len(gold),
        annotator_names=tuple(annotators.tolist()),
    )
    return *part(gold), answers, TestSet(*part(test)), tuple(genres)


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
                for entry in chain.from_iterable(json.loads(opened.read(f"friends.{part}.json"))):
                    votes = [int(digit) for digit in entry["annotation"]]  # a digit per emotion
                    if len(votes) != len(EMOTIONS):
                        given = short_repr(entry["annotation"])
                        raise ValueError(f"the annotation {given} must have {len(EMOTIONS)} digits")
                    text = str(entry["utterance"])
                    key = make_key(text, str(entry["speaker"]))
                    found.append(Utterance(part, text.strip(), key, votes))
    except Exception as error:  # zipfile and malformed content raise many types
        raise DataError(f"{name}: {ARCHIVE} cannot be read ({type(error).__name__}: {error})") from None
    return found


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


def make_source(
    name: str,
    files: Sequence[RemoteFile],
    task: str,
    citation: str,
    sizes: Sizes,
    read: Callable[[Mapping[str, bytes], str], CrowdArrays],
    terms: str = "academic use only, at the user's own risk",
    anonymous: bool = False,
) -> Source:
    """Return the source of a dataset whose candidates are the unions of answers.

    `read` makes arrays of the files' contents, by file name.
    """
    obtain = f"get it with `plench data download {name} --data-dir DIR`"
    origins = {tuple(remote.url.split("/")[3:6]): None for remote in files}
    card = DatasetCard(
        name=name,
        kind="tabular",
        task=task,
        source=" and ".join(f"GitHub repository {owner}/{it} at commit {at}" for owner, it, at in origins),
        terms=terms,
        citation=citation,
        default_steps=10_000,
        sizes=sizes,
    )

    def load(data_dir: Path | None) -> Dataset:
        contents, warnings = {}, []
        for remote in files:
            file = Path(remote.path).name
            # Where it was downloaded to, because files of two datasets have the same name.
            path = Path() if data_dir is None else data_dir / remote.path
            if not path.is_file():
                path = find_entry(name, (file,), data_dir, obtain, accept=Path.is_file)
            contents[file] = read_file(path, name)
            warnings += remote.warn_mismatch(name, file, contents[file])
        features, labels, answers, test, class_names = read(contents, name)
        return Dataset(
            features,
            combine_answers(answers),
            labels,
            replace(card, class_names=class_names),
            test,
            tuple(warnings),
            verified=not warnings,
            answers=answers,
        )

    return Source(card, load, tuple(files), obtain, own_test=True, answers=True, anonymous=anonymous)


CROWDS_2013 = (
    "F. Rodrigues, F. Pereira, B. Ribeiro. Learning from multiple annotators: distinguishing good from "
    "random labelers. Pattern Recognition Letters 34(12), 2013."
)
LABELME = make_source(
    "LabelMe_Crowd",
    on_github(
        "fmenat/PyLearningCrowds",
        "0edf617d0357a43b48dc53f10f4181ec0163d4db",
        "data/LabelMe",
        "labelme",
        {
            "LabelMe_VGG_avg_train.npy": "cd78b4f59fd772c70b3e7f2afcdfdde8b8792492",
            "LabelMe_VGG_avg_test.npy": "2c7251913fb9848b815a8c126b63f5e1e5273224",
            "LabelMe_Z_train.txt": "9bed2b9b4e5f4f048dd46a89d90d459f224c0b9f",
            "LabelMe_Z_test.txt": "d586a7e26df58ceb0f36b7eeb96b0b205fe8750a",
            "answers.txt": "22596a764ac8c8c09a586b17f559ef21d25feec4",
        },
    ),
    "scene classification with crowd workers",
    "F. Rodrigues, F. Pereira. Deep learning from crowds. AAAI 2018.",
    Sizes(1_000, 512, LABELME_CLASSES),
    read_labelme,
)
MUSIC = make_source(
    "Music_Crowd",
    on_github(
        "shahanaibrahimosu/end-to-end-crowdsourcing",
        "7653680c475ba8faa5d4a7b104b42a2a5204cef9",
        "data/Music",
        "music",
        {
            "music_genre_gold.csv": "30f10e4f28b2de9523fde9dade363cf99aa5b9bb",
            "music_genre_mturk.csv": "0d86a774abccd6f64a0d4ec5ddfcc2b803a56b31",
            "music_genre_test.csv": "153e1aa2448d1d6fb2c3b195a403579d75b4e1f2",
        },
    ),
    "music genre classification with crowd workers",
    CROWDS_2013,
    Sizes(700, 124, 10),
    read_music,
)
SENTIMENT = make_source(
    "SentimentPolarity",
    on_github(
        "fmenat/PyLearningCrowds",
        "0edf617d0357a43b48dc53f10f4181ec0163d4db",
        "data/Sentiment",
        "sentiment",
        {
            "Sentiment_text_train.txt": "66350b17e1eba1c7d01d345dd7b81083cbbfb18f",
            "Sentiment_text_test.txt": "8ebf447104dd6680e0374ef929c8321cb46d8c24",
            "Sentiment_Z_train.txt": "03d49ce6620e7cc9b7e3ea858ea5ff49ac287555",
            "Sentiment_Z_test.txt": "f62f525dcd49059111b1a08e151a2357eaa42cbf",
            "answers.txt": "81b6c5751eb21b38a83949170be2c47f700f30b2",
        },
    ),
    "polarity of sentences of film reviews with crowd workers",
    f"{CROWDS_2013} Sentences: B. Pang, L. Lee. Seeing stars. ACL 2005.",
    Sizes(4_999, 1, len(POLARITIES)),
    read_sentiment,
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


def find_votes(name: str) -> Source | None:
    """Return the source of `LabelMe_Crowd_Votes_2`: the classes with at least two votes."""
    from plench.data.sources import answered_datasets  # sources are found in these files

    match = re.fullmatch(r"(.+)votes(\d{1,4})", normalise(name))
    if match is None:
        return None
    source = next((each for each in answered_datasets() if normalise(each.card.name) == match[1]), None)
    if source is None:
        return None
    min_votes = int(match[2])
    if min_votes < 1:
        raise UsageError(f"dataset {name!r}: the number of votes must be at least 1")
    if min_votes == 1:
        return source
    named = f"{source.card.name}_Votes_{min_votes}"

    def load(data_dir: Path | None) -> Dataset:
        dataset = source.load(data_dir)
        assert dataset.answers is not None
        candidates = combine_answers(dataset.answers, "votes", min_votes)
        return replace(dataset, candidates=candidates, card=replace(dataset.card, name=named))

    return replace(source, card=replace(source.card, name=named), load=load)


VOTES = SourceFinder(
    "LabelMe_Crowd_Votes_m", "a dataset with answers, with the classes of at least m votes", find_votes
)
