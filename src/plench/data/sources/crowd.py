"""Two datasets with the answers of crowd workers: LabelMe (images as features) and music genres.

Candidate sets are the unions of the answers, or the classes with at least m votes (`LabelMe_Crowd_Votes_2`).
Both have test sets of their own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plench.data.answers import Answers, combine_answers, read_answer_matrix
from plench.data.dataset import Dataset, DatasetCard, Sizes, TestSet
from plench.data.readers import find_entry, read_array, read_file
from plench.data.sources.base import RemoteFile, Source, SourceFinder
from plench.data.tables import RawTable, make_column, parse_table
from plench.errors import DataError, UsageError
from plench.text import normalise

LABELME_CLASSES = 8
# Features, labels, answers, test set and names of classes.
CrowdArrays = tuple[NDArray[np.float32], NDArray[np.int64], Answers, TestSet, tuple[str, ...] | None]


@dataclass(frozen=True)
class Release:
    """A public dataset of crowd answers: its files, by git's SHA-1, and how to read them."""

    name: str
    folder: str
    repository: str
    remote_folder: str
    files: Mapping[str, str]
    task: str
    citation: str
    sizes: Sizes
    read: Callable[[Mapping[str, bytes], str], CrowdArrays]


def read_labelme(files: Mapping[str, bytes], name: str) -> CrowdArrays:
    """Read features, true labels and the matrix of answers, in which −1 is a gap."""

    def features(file: str) -> NDArray[np.float32]:
        return read_array(files[file], f"{name}: {file}")

    def numbers(file: str) -> NDArray[np.int64]:
        try:
            return np.loadtxt(io.BytesIO(files[file]), dtype=np.int64, ndmin=2, encoding="ascii")
        except (ValueError, OverflowError) as error:
            raise DataError(f"{name}: {file} cannot be read as whole numbers ({error})") from None

    return (
        features("LabelMe_VGG_avg_train.npy"),
        numbers("LabelMe_Z_train.txt").ravel(),
        read_answer_matrix(numbers("answers.txt"), LABELME_CLASSES, f"{name}: answers.txt"),
        TestSet(features("LabelMe_VGG_avg_test.npy"), numbers("LabelMe_Z_test.txt").ravel()),
        None,
    )


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


def make_source(release: Release, min_votes: int = 1) -> Source:
    """Return the source of a dataset whose candidates are the classes with at least `min_votes` votes."""
    name = release.name if min_votes == 1 else f"{release.name}_Votes_{min_votes}"
    obtain = f"get it with `plench data download {release.name} --data-dir DIR`"
    commit, _, _ = release.remote_folder.partition("/")
    card = DatasetCard(
        name=name,
        kind="tabular",
        task=release.task,
        source=f"GitHub repository {release.repository} at commit {commit}",
        terms="academic use only, at the user's own risk",
        citation=release.citation,
        default_steps=10_000,
        sizes=release.sizes,
    )
    base = f"https://raw.githubusercontent.com/{release.repository}/{release.remote_folder}"
    remote = {
        file: RemoteFile(f"{base}/{file}", f"{release.folder}/{file}", sha1)
        for file, sha1 in release.files.items()
    }

    def load(data_dir: Path | None) -> Dataset:
        contents, warnings = {}, []
        for file in remote:
            path = find_entry(name, (file,), data_dir, obtain, accept=Path.is_file)
            contents[file] = read_file(path, name)
            if remote[file].explain_mismatch(contents[file]) is not None:
                warnings.append(f"{name}: {file} is not the public file (its git SHA-1 differs)")
        features, labels, answers, test, class_names = release.read(contents, name)
        return Dataset(
            features,
            combine_answers(answers, "votes", min_votes),
            labels,
            replace(card, class_names=class_names),
            test,
            tuple(warnings),
            verified=not warnings,
            answers=answers,
        )

    return Source(card, load, tuple(remote.values()), obtain, own_test=True, answers=True)


LABELME_RELEASE = Release(
    "LabelMe_Crowd",
    "labelme",
    "fmenat/PyLearningCrowds",
    "0edf617d0357a43b48dc53f10f4181ec0163d4db/data/LabelMe",
    {
        "LabelMe_VGG_avg_train.npy": "cd78b4f59fd772c70b3e7f2afcdfdde8b8792492",
        "LabelMe_VGG_avg_test.npy": "2c7251913fb9848b815a8c126b63f5e1e5273224",
        "LabelMe_Z_train.txt": "9bed2b9b4e5f4f048dd46a89d90d459f224c0b9f",
        "LabelMe_Z_test.txt": "d586a7e26df58ceb0f36b7eeb96b0b205fe8750a",
        "answers.txt": "22596a764ac8c8c09a586b17f559ef21d25feec4",
    },
    "scene classification with crowd workers",
    "F. Rodrigues, F. Pereira. Deep learning from crowds. AAAI 2018.",
    Sizes(1_000, 512, LABELME_CLASSES),
    read_labelme,
)
MUSIC_RELEASE = Release(
    "Music_Crowd",
    "music",
    "shahanaibrahimosu/end-to-end-crowdsourcing",
    "7653680c475ba8faa5d4a7b104b42a2a5204cef9/data/Music",
    {
        "music_genre_gold.csv": "30f10e4f28b2de9523fde9dade363cf99aa5b9bb",
        "music_genre_mturk.csv": "0d86a774abccd6f64a0d4ec5ddfcc2b803a56b31",
        "music_genre_test.csv": "153e1aa2448d1d6fb2c3b195a403579d75b4e1f2",
    },
    "music genre classification with crowd workers",
    "F. Rodrigues, F. Pereira, B. Ribeiro. Learning from multiple annotators: distinguishing good from "
    "random labelers. Pattern Recognition Letters 34(12), 2013.",
    Sizes(700, 124, 10),
    read_music,
)
RELEASES = (LABELME_RELEASE, MUSIC_RELEASE)

LABELME = make_source(LABELME_RELEASE)
MUSIC = make_source(MUSIC_RELEASE)


def explain_missing_answers(algorithm: str, dataset: str) -> str:
    """Return the message for a method that learns from answers and a dataset without any."""
    answered = ", ".join(release.name for release in RELEASES)
    return (
        f"{algorithm} learns from the answers of annotators, which {dataset} does not have; expected one of "
        f"{answered}, or own data with answers"
    )


def find_votes(name: str) -> Source | None:
    """Return the source of `LabelMe_Crowd_Votes_2`: the classes with at least two votes."""
    for release in RELEASES:
        match = re.fullmatch(rf"{normalise(release.name)}votes(\d{{1,4}})", normalise(name))
        if match is not None:
            if int(match[1]) < 1:
                raise UsageError(f"dataset {name!r}: the number of votes must be at least 1")
            return make_source(release, int(match[1]))
    return None


VOTES = SourceFinder(
    "LabelMe_Crowd_Votes_m", "LabelMe_Crowd or Music_Crowd with the classes of at least m votes", find_votes
)
