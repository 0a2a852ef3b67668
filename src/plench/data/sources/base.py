"""The types of a source: a dataset with its card, its loader, its public files, and encoders of its data."""

import logging
import math
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from plench.data.answers import Answers
from plench.data.dataset import Dataset, DatasetCard
from plench.data.encoders import (
    FoundEncoder,
    embed_column,
    find_available,
    find_encoder,
    list_encoders,
    make_image_column,
)
from plench.data.readers import hash_git_blob, hash_md5
from plench.data.tables import RawTable, Table
from plench.errors import DataError, UsageError
from plench.files import replace_file

DEFAULT_STEPS = {"tabular": 10_000, "image": 60_000}
TIMEOUT_SECONDS = 60  # without a single byte
MAX_BYTES = 2**30  # the largest public file has 170 MB

logger = logging.getLogger("plench")


@dataclass(frozen=True)
class RemoteFile:
    """A public file: where it is, its name in `data_dir`, and git's SHA-1 or else the MD5 of its content.

    `mirrors` are further addresses, tried in turn if the one before fails or has another file.
    """

    url: str
    path: str
    git_sha1: str = ""
    md5: str = ""
    mirrors: tuple[str, ...] = ()

    def explain_mismatch(self, content: bytes) -> str | None:
        """Return how the content differs from the known digest; None if it does not."""
        if self.git_sha1:
            what, found, known = "git SHA-1", hash_git_blob(content), self.git_sha1
        else:
            what, found, known = "MD5", hash_md5(content), self.md5
        return None if found == known else f"its {what} is {found} instead of {known}"

    def warn_mismatch(self, name: str, file: str, content: bytes) -> list[str]:
        """Return a warning if a file of a dataset, which has a git SHA-1, is not the public one."""
        is_public = self.explain_mismatch(content) is None
        return [] if is_public else [f"{name}: {file} is not the public file (its git SHA-1 differs)"]

    def fetch(self) -> bytes:
        """Return the content from the first address that has the known file."""
        errors = []
        for url in (self.url, *self.mirrors):
            try:
                with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                    content: bytes = response.read(MAX_BYTES + 1)
            except (OSError, HTTPException, ValueError) as error:  # ValueError: not an address
                errors.append(f"{url} could not be fetched ({error})")
                continue
            mismatch = self.explain_mismatch(content)
            if mismatch is None:
                return content
            if len(content) > MAX_BYTES:
                errors.append(f"{url} sends more than {MAX_BYTES:,} bytes")
            else:
                errors.append(f"{url} is not the known file: {mismatch}")
        raise DataError("; ".join(errors) + "; nothing was saved")

    def download(self, path: Path) -> Path:
        """Fetch the file, verify it and move it to `path`; a failed download leaves nothing behind.

        A file that is there already and has the known digest is not fetched again; one that differs is never
        overwritten.
        """
        try:
            if path.exists():
                if self.explain_mismatch(path.read_bytes()) is None:
                    return path
                raise DataError(f"{path} exists and is not the public file; move it away first")
            content = self.fetch()
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, lambda temporary: temporary.write_bytes(content))
        except OSError as error:
            raise DataError(f"{path} could not be written ({error})") from None
        return path


@dataclass(frozen=True)
class Source:
    """A dataset that can be loaded by name.

    `load` takes the data folder (None if the user gave none). `files` are what `download_dataset` fetches.
    `obtain` tells the user how to get the files of the data folder; None means that none are needed, because
    the data is built in or was given by path. `annotations`, if examples have several annotators, takes the
    data folder and the number of examples and returns the set of each annotator. `own_test`, `answers` and
    `anonymous` are for lists and suites: the dataset has its own test set, keeps the answers of annotators,
    and has votes only, of which nobody knows whose they are. `load_files`, if the data have image files,
    loads the dataset with a column of these files, for encoders. `raw` is a table given by path as it was
    read, with the roles of its columns.
    """

    card: DatasetCard
    load: Callable[[Path | None], Dataset]
    files: tuple[RemoteFile, ...] = ()
    obtain: str | None = None
    annotations: Callable[[Path | None, int], Answers] | None = None
    own_test: bool = False
    answers: bool = False
    anonymous: bool = False
    load_files: Callable[[Path | None], Dataset] | None = None
    raw: tuple[RawTable, Mapping[str, str]] | None = None

    @property
    def how(self) -> str:
        """How the user obtains the data of a named dataset, in a word or two."""
        if self.obtain is None:
            return "built in"
        return "download" if self.files else "by hand"


@dataclass(frozen=True)
class SourceFinder:
    """Datasets without a fixed name: `find` returns the source of a name, or None.

    `name` is how lists write such names, `meaning` explains them.
    """

    name: str
    meaning: str
    find: Callable[[str], Source | None]


def attach_encoders(
    source: Source, text_encoder: str | None = None, image_encoder: str | None = None
) -> Source:
    """Return the source with its texts or images encoded; the name in records then names the encoders.

    `image_encoder` may be "none", or "auto": an encoder that is installed, if there is one. The default is
    auto for a table with other columns besides images; images alone are left as pixels. With "files" images
    are a column of files, which a model encodes.
    """
    card = source.card
    if image_encoder == "files":
        return source if source.load_files is None else replace(source, load=source.load_files)
    is_mixed = source.load_files is not None and card.kind == "tabular"
    text = None if text_encoder in (None, "none") else find_encoder(text_encoder, "text")
    image, message = None, ""
    if image_encoder == "auto" or (image_encoder is None and is_mixed):
        image = find_available("image") if is_mixed or card.kind == "image" else None
        if image is not None:
            message = (
                f"{card.name}: images are encoded by {image.used.name}, which is installed; with "
                f"image_encoder=none (--image-encoder none) they are {'left out' if is_mixed else 'pixels'}"
            )
    elif image_encoder not in (None, "none"):
        image = find_encoder(image_encoder, "image")
    used = [found.used.name for found in (text, image) if found is not None]
    if not used:
        return source
    steps = card.default_steps if card.kind == "tabular" else DEFAULT_STEPS["tabular"]
    card = replace(
        card, name="+".join([card.name, *used]), kind="tabular", default_steps=steps, published=None
    )

    def load(data_dir: Path | None) -> Dataset:
        if message:
            logger.warning("%s", message)  # before it takes its time
        load_base = source.load if image is None or source.load_files is None else source.load_files
        dataset = load_base(data_dir)
        parts = [dataset.features] if dataset.test is None else [dataset.features, dataset.test.features]
        features, *tests = [embed_features(part, dataset.card.name, text, image) for part in parts]
        test = replace(dataset.test, features=tests[0]) if dataset.test is not None else None
        named = replace(card, class_names=dataset.class_names)
        return replace(dataset, features=features, test=test, card=named)

    return replace(source, card=card, load=load, load_files=None)


def embed_features(
    features: NDArray[Any] | Table, name: str, text: FoundEncoder | None, image: FoundEncoder | None
) -> Table:
    """Return columns or images with texts and images encoded; an encoder without any is a UsageError."""
    if not isinstance(features, Table) and features.ndim == 4 and image is not None:
        features = Table((make_image_column(features),))
    columns = features.columns if isinstance(features, Table) else ()
    encoders = {found.kind: found for found in (text, image) if found is not None}
    for found in encoders.values():
        if found.kind not in {column.kind for column in columns}:
            option = "text=COLUMN" if found.kind == "text" else "images=COLUMN"
            raise UsageError(
                f"{name} has no {found.kind}s for the encoder {found.used.spec}; {option} behind the path of "
                "a table says where they are"
            )
    return Table(
        tuple(
            embed_column(column, encoders[column.kind]) if column.kind in encoders else column
            for column in columns
        )
    )


def encode_given(
    features: NDArray[Any] | Table, text_encoder: str | None, image_encoder: str | None
) -> NDArray[Any] | Table:
    """Encode the texts and images of a frame or array given in Python."""
    text = None if text_encoder in (None, "none") else find_encoder(text_encoder, "text")
    has_files = isinstance(features, Table) and any(column.kind == "image" for column in features.columns)
    image = None
    if image_encoder not in (None, "none", "auto"):
        image = find_encoder(image_encoder, "image")
    elif has_files:
        image = find_available("image")
        if image is None:
            raise UsageError(f"X has a column of image files: give image_encoder={list_encoders('image')}")
    return features if text is None and image is None else embed_features(features, "X", text, image)


def compare_published(dataset: Dataset) -> list[str]:
    """Return warnings for sizes, mean set size and noise rate that differ from the paper's table.

    The table rounds mean set sizes to 0.01 and noise rates to 0.01 %: smaller differences do not count.
    """
    published = dataset.card.published
    if published is None:
        return []
    name, warnings = dataset.card.name, []
    for what, found, wanted in (
        ("examples", dataset.n_examples, published.examples),
        ("features", math.prod(dataset.input_shape[1:]), published.features),
        ("classes", dataset.n_classes, published.classes),
    ):
        if found != wanted:
            warnings.append(f"{name} has {found:,} {what}; published are {wanted:,}")
    if abs(dataset.mean_candidates - published.mean_candidates) > 0.005 + 1e-9:
        warnings.append(
            f"{name} has {dataset.mean_candidates:.4f} candidates on average; "
            f"published are {published.mean_candidates:.2f}"
        )
    if dataset.noise_rate is not None and abs(dataset.noise_rate - published.noise_rate) > 0.00005 + 1e-9:
        warnings.append(
            f"{name} has a noise rate of {dataset.noise_rate:.4%}; published are {published.noise_rate:.2%}"
        )
    return warnings
