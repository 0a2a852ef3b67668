"""The tabular benchmark datasets and FG-NET, read from `.mat` files, and any such file given by path."""

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from plench.data.check import keep_together
from plench.data.dataset import Dataset, DatasetCard, Published
from plench.data.readers import find_entry, read_file
from plench.data.sources.arrays import make_card
from plench.data.sources.base import RemoteFile, Source, SourceFinder, compare_published
from plench.errors import DataError
from plench.files import sha256

COMMIT = "a43c823f1cf2575e7fc74bcdfc307463e0bd44bd"
REPOSITORY = "pruirui/partial_label_realworld_dataset"
MIRROR = (
    "https://raw.githubusercontent.com/mathefuchs/robust-pll/398659255438af55e163e0e9e1697c2d423ee97d/"
    "external/realworld-datasets"
)
MIRRORED = {
    "lost.mat": "lost.mat",
    "MSRCv2.mat": "msrc-v2.mat",
    "BirdSong.mat": "bird-song.mat",
    "Mirflickr.mat": "mir-flickr.mat",
    "Soccer Player.mat": "soccer.mat",
    "Yahoo! News.mat": "yahoo-news.mat",
}
TERMS = "academic use only, at the user's own risk (the authors' notice)"
VARIABLES = ("data", "partial_target", "target")
MATRIX, COMPRESSED, SPARSE, COMPLEX = 14, 15, 5, 0x0800  # codes of the format
NUMBER_CODES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13}
NUMERIC_CLASSES = range(5, 16)  # sparse, double, single, and integers of 8 to 64 bits


def make_source(
    name: str,
    file: str,
    git_sha1: str | None,
    published: Published | None,
    task: str,
    citation: str,
    *,
    default_steps: int = 10_000,
) -> Source:
    """Return the source of one `.mat` file; without a SHA-1 the user has to provide the file."""
    if git_sha1 is None:
        origin = "palm.seu.edu.cn/zhangml (Resources page)"
        files: tuple[RemoteFile, ...] = ()
        obtain = f"no public raw file is known: get {file} from {origin}"
    else:
        origin = f"GitHub repository {REPOSITORY} at commit {COMMIT}"
        url = f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/{quote(file)}"
        mirrors = (f"{MIRROR}/{MIRRORED[file]}",) if file in MIRRORED else ()
        files = (RemoteFile(url, file, git_sha1, mirrors=mirrors),)
        obtain = f"get it with `plench data download {name} --data-dir DIR`, or from {url}"
    card = DatasetCard(
        name=name,
        kind="tabular",
        task=task,
        source=origin,
        terms=TERMS,
        citation=citation,
        default_steps=default_steps,
        published=published,
    )

    def load(data_dir: Path | None) -> Dataset:
        path = find_entry(name, (file,), data_dir, obtain, accept=Path.is_file)
        content = read_file(path, name)
        features, candidates, labels = read_mat(content, f"{name}: {path}")
        warnings = [text for remote in files for text in remote.warn_mismatch(name, path.name, content)]
        verified = bool(files) and not warnings
        dataset = Dataset(features, candidates, labels, card, verified=verified)
        if labels is None:
            warnings.append(f"{name}: {path.name} has no true labels (`target`): accuracy is not measured")
        return dataset.with_warnings(warnings + compare_published(dataset))

    return Source(card, load, files, obtain)


def find_mat(name: str) -> Source | None:
    """Return the source of a `.mat` file; its name in records carries a hash of its content."""
    path = Path(name)
    if path.suffix.lower() != ".mat":
        return None
    content = read_file(path, name)
    arrays = read_mat(content, name)
    card = make_card(path, sha256(content), "tabular", has_candidates=True)
    return Source(card, lambda data_dir: keep_together(Dataset(*arrays, card)))


def read_mat(content: bytes, name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64] | None]:
    """Return features (N×D), candidates (N×K) and labels (N), if any, of the bytes of a `.mat` file.

    Its variables are `data` (N×D), `partial_target` (K×N, 0 or 1) and `target` (K×N, one 1 per column), each
    dense or sparse and of any real numeric type.
    """
    try:
        found = load_matrices(content)
    except DataError as error:
        raise DataError(f"{name} cannot be used: {error}") from None
    except Exception as error:  # SciPy raises many types for a damaged file
        raise DataError(f"{name} cannot be used: it is damaged ({error})") from None
    features, partial_target, target = found["data"], found["partial_target"], found.get("target")
    if target is None:
        return features, partial_target.T, None
    wrong = ((target != 0) & (target != 1)).any(axis=0) | ((target == 1).sum(axis=0) != 1)
    if wrong.any():
        raise DataError(
            f"{name} cannot be used: `target` of example {np.flatnonzero(wrong)[0]} must be a single 1 "
            f"among 0s ({wrong.sum()} of {target.shape[1]} examples differ)"
        )
    return features, partial_target.T, np.argmax(target, axis=0)


def load_matrices(content: bytes) -> dict[str, NDArray[Any]]:
    """Return the variables of a `.mat` file as dense matrices whose shapes fit together."""
    from scipy.io import loadmat  # imported late: only these files need it
    from scipy.sparse import issparse

    names = check_elements(content)
    if not {"data", "partial_target"} <= names:
        listed = ", ".join(sorted(names)[:10]) or "nothing"
        raise DataError(
            f"it contains {listed}; expected are the variables `data` and `partial_target`, and `target` for "
            "true labels"
        )
    found = loadmat(io.BytesIO(content), variable_names=VARIABLES)
    matrices = {name: found[name] for name in VARIABLES if name in names}
    for name, matrix in matrices.items():
        if matrix.dtype.kind not in "biuf" or matrix.ndim != 2 or 0 in matrix.shape:
            raise DataError(
                f"`{name}` is of type {matrix.dtype} and shape {matrix.shape}; expected is a matrix of real "
                "numbers that is not empty"
            )
    expected = (matrices["partial_target"].shape[0], matrices["data"].shape[0])
    for name in matrices.keys() - {"data"}:
        if matrices[name].shape != expected:
            raise DataError(
                f"`{name}` has shape {matrices[name].shape}; expected is {expected}, classes × examples"
            )
    for name, matrix in matrices.items():
        if issparse(matrix):
            matrix.check_format(full_check=True)
            if (np.diff(matrix.indptr) < 0).any():  # not checked in a matrix that is called empty
                raise DataError(f"it is damaged: the columns of `{name}` overlap")
            matrices[name] = matrix.toarray()
    return matrices


def check_elements(content: bytes) -> set[str]:
    """Return the names of the variables; raise DataError where `loadmat` would crash the process.

    It looks type codes up in a table without checking them, so those of the variables to be read are checked
    here.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise DataError("it is not a MATLAB file of version 5 to 7")
    if content[124:126] == struct.pack(f"{order}H", 0x0200):
        raise DataError("it is a MATLAB file of version 7.3 (HDF5); save it with the option -v7")
    names = set()
    for code, element in iterate_elements(memoryview(content)[128:], order):
        if code == COMPRESSED:
            code, element = next(iterate_elements(memoryview(zlib.decompress(element)), order))
        parts = list(iterate_elements(element, order))
        if code != MATRIX or len(parts) < 3 or len(parts[0][1]) < 4:
            raise DataError("it is damaged: an element is not a variable")
        name = bytes(parts[2][1]).decode("ascii", "replace")
        names.add(name)
        (flags,) = struct.unpack_from(f"{order}I", parts[0][1])
        if name in VARIABLES and (flags & 0xFF) in NUMERIC_CLASSES:
            n_parts = (6 if flags & 0xFF == SPARSE else 4) + bool(flags & COMPLEX)
            if len(parts) != n_parts or not {code for code, _ in parts} <= NUMBER_CODES:
                raise DataError(f"it is damaged: `{name}` is not stored as a matrix is")
        elif name in VARIABLES:
            raise DataError(f"`{name}` is not a matrix of numbers")
    return names


def iterate_elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type code and content of the elements that follow one another."""
    place = 0
    while place < len(data):
        code, size = struct.unpack_from(f"{order}II", data, place)
        start, place = place + 8, place + 8 + size + (0 if code == COMPRESSED else -size % 8)
        if code >> 16:  # a small element: size and type share four bytes, the content is in the next four
            code, size, start, place = code & 0xFFFF, code >> 16, start - 4, start
        if start + size > len(data):
            raise DataError("it is truncated")
        yield code, data[start : start + size]


MAT = SourceFinder(
    "path/to/file.mat",
    "`data` (N×D), `partial_target` (K×N) and perhaps `target` (K×N), as in the benchmark's files",
    find_mat,
)

LOST = make_source(
    "Lost",
    "lost.mat",
    "caffdd72f123985c422739c5d99bfbb888f23735",
    Published(1_122, 108, 16, 2.23, 0.0),
    "automatic face naming",
    "T. Cour, B. Sapp, B. Taskar. Learning from partial labels. JMLR 12, 2011.",
)

MSRCV2 = make_source(
    "MSRCv2",
    "MSRCv2.mat",
    "6c78f3e9e4d141413815d212d739c33c7912b828",
    Published(1_758, 48, 23, 3.16, 0.0),
    "object classification",
    "L. Liu, T. Dietterich. A conditional multinomial mixture model for superset label learning. NIPS 2012.",
)

MIRFLICKR = make_source(
    "Mirflickr",
    "Mirflickr.mat",
    "4e35e2ac7d16120722a2f2ec6e7baa99138ddbd0",
    Published(2_780, 1_536, 14, 2.76, 0.0),
    "web image classification",
    "M. J. Huiskes, M. S. Lew. The MIR Flickr retrieval evaluation. ACM MIR 2008.",
)

BIRDSONG = make_source(
    "Birdsong",
    "BirdSong.mat",
    "1913bf36b6d1f5f30d1803fdae6547c06335ed27",
    Published(4_998, 38, 13, 2.18, 0.0),
    "bird song classification",
    "F. Briggs, X. Z. Fern, R. Raich. Rank-loss support instance machines for MIML instance annotation. "
    "KDD 2012.",
)

MALAGASY = make_source(
    "Malagasy",
    "malagasy.mat",
    "08a13577f205ab2fe16fb5a069972ced8fb49c24",
    Published(5_303, 384, 44, 8.35, 0.0004),
    "part-of-speech tagging",
    "D. Garrette, J. Baldridge. Learning a part-of-speech tagger from two hours of annotation. "
    "NAACL-HLT 2013.",
)

SOCCERPLAYER = make_source(
    "SoccerPlayer",
    "Soccer Player.mat",
    "3372e7350e06eba374c715e07fbd18e2555e00ec",
    Published(17_472, 279, 171, 2.09, 0.0),
    "automatic face naming",
    "Z. Zeng et al. Learning by associating ambiguously labeled images. CVPR 2013.",
    default_steps=20_000,
)

ITALIAN = make_source(
    "Italian",
    "italian.mat",
    "9f11a7a362b0bcc313b84e8f41326b77c2b9b030",
    Published(21_878, 519, 90, 1.60, 0.0),
    "part-of-speech tagging",
    "J. Bos, C. Bosco, A. Mazzei. Converting a dependency treebank to a categorial grammar treebank for "
    "Italian. TLT 2009.",
    default_steps=20_000,
)

YAHOONEWS = make_source(
    "YahooNews",
    "Yahoo! News.mat",
    "c9c3c35a6562ece4dffca8e7997c4c9cdcd12354",
    Published(22_991, 163, 219, 1.91, 0.0),
    "automatic face naming",
    "M. Guillaumin, J. Verbeek, C. Schmid. Multiple instance metric learning from automatically labeled "
    "bags of faces. ECCV 2010.",
    default_steps=20_000,
)

ENGLISH = make_source(
    "English",
    "English.mat",
    None,
    Published(24_000, 300, 45, 1.19, 0.0097),
    "part-of-speech tagging",
    "D. Zhou et al. Weakly supervised POS tagging without disambiguation. ACM TALLIP 17(4), 2018.",
    default_steps=20_000,
)

FGNET = make_source(
    "FGNET",
    "FG-NET.mat",
    "18d4458042a84398b843d0f9e47613fb481b33de",
    None,
    "facial age estimation",
    "G. Panis et al. Overview of research on facial ageing using the FG-NET ageing database. "
    "IET Biometrics 5(2), 2016.",
)
