"""Datasets with the answers of crowd workers: LabelMe (images as features), music genres, film reviews.

Candidate sets are the unions of the answers, or the classes with at least m votes (`LabelMe_Crowd_Votes_2`).
All have test sets of their own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plench.data.answers import Answers, combine_answers, read_answer_matrix
from plench.data.dataset import Dataset, DatasetCard, Sizes, TestSet
from plench.data.readers import find_entry, read_array, read_file
from plench.data.sources.base import RemoteFile, Source, SourceFinder
from plench.data.tables import Column, RawTable, Table, freeze, make_column, parse_table
from plench.errors import DataError, UsageError
from plench.text import normalise

LABELME_CLASSES = 8
POLARITIES = ("negative", "positive")
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
    categories = tuple(sorted(set(texts)))
    code = {text: number for number, text in enumerate(categories)}
    values = np.array([code[text] for text in texts], np.int32)
    return Table((Column("text", "text", freeze(values), categories),))


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
    tables = {
        part: parse_table(files[f"music_genre_{part}.csv"], ".csv", f"{name}: music_genre_{part}.csv")
        for part in ("gold", "mturk", "test")
    }
    for table in tables.values():
        table.check_columns(("id", "class"))
    gold, mturk, test = tables.values()
    mturk.check_columns(("annotator",))
    genres = sorted({text for text in gold.texts("class") if text is not None})
    number = {genre: position for position, genre in enumerate(genres)}
    songs = {song: row for row, song in enumerate(gold.texts("id")) if song is not None}
    item = look_up(mturk, "id", songs)
    labels = look_up(mturk, "class", number)
    annotators, annotator = np.unique(mturk.complete("annotator"), return_inverse=True)
    sets = labels[:, None] == np.arange(len(genres))
    features = [column for column in gold.columns if column.startswith("feature")]
    return (
        stack_columns(gold, features),
        look_up(gold, "class", number),
        Answers(item, annotator, sets, len(gold), annotator_names=tuple(annotators.tolist())),
        TestSet(stack_columns(test, features), look_up(test, "class", number)),
        tuple(genres),
    )


def look_up(table: RawTable, column: str, known: Mapping[str, int]) -> NDArray[np.int64]:
    """Return the number of each text in a column."""
    found = []
    for row, text in enumerate(table.texts(column)):
        if text is None or text not in known:
            raise DataError(f"{table.place(row, column)}: {text!r} is unknown in this dataset")
        found.append(known[text])
    return np.array(found)


def stack_columns(table: RawTable, columns: list[str]) -> NDArray[np.float32]:
    """Return columns of numbers as a matrix."""
    table.check_columns(columns)
    return np.stack([make_column(table, column, "number").values for column in columns], axis=1)


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
            if remote.explain_mismatch(contents[file]) is not None:
                warnings.append(f"{name}: {file} is not the public file (its git SHA-1 differs)")
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
