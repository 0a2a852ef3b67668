"""The tabular benchmark datasets and FG-NET, read from `.mat` files, and any such file given by path."""

import hashlib
from functools import partial
from pathlib import Path
from urllib.parse import quote

from plench.data.dataset import Dataset, DatasetCard, Published
from plench.data.files import find_entry, read_file
from plench.data.integrity import hash_git_blob
from plench.data.mat_file import MatContent, read_mat
from plench.data.sources.arrays import make_card
from plench.data.sources.base import RemoteFile, Source, SourceFinder, compare_published
from plench.errors import DataError
from plench.plain_files import is_plain

COMMIT = "a43c823f1cf2575e7fc74bcdfc307463e0bd44bd"
REPOSITORY = "pruirui/partial_label_realworld_dataset"
TERMS = "academic use only, at the user's own risk (the authors' notice)"


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
    """A dataset of one `.mat` file; without a SHA-1 there is no public raw file and the user brings it."""
    if git_sha1 is None:
        origin = "palm.seu.edu.cn/zhangml (Resources page)"
        files: tuple[RemoteFile, ...] = ()
        obtain = f"no public raw file is known: get {file} from {origin}"
    else:
        origin = f"GitHub repository {REPOSITORY} at commit {COMMIT}"
        url = f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/{quote(file)}"
        files = (RemoteFile(url, file, git_sha1),)
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
    return Source(card, partial(load_mat, card, file, git_sha1, obtain), files, obtain)


def load_mat(
    card: DatasetCard, file: str, git_sha1: str | None, obtain: str, data_dir: Path | None
) -> Dataset:
    """Load a dataset from its file in `data_dir` or a folder directly below; differences become notices."""
    path = find_entry(card.name, (file,), data_dir, obtain, accept=is_plain)
    content = read_file(path, card.name)
    arrays = parse_mat(content, f"{card.name}: {path}")
    verified = git_sha1 is not None and hash_git_blob(content) == git_sha1
    dataset = Dataset(arrays.features, arrays.candidates, arrays.labels, card, verified=verified)
    notices = []
    if git_sha1 is not None and not verified:
        notices.append(f"{card.name}: {path.name} is not the public file (its git SHA-1 differs)")
    if arrays.labels is None:
        notices.append(f"{card.name}: {path.name} has no true labels (`target`), so accuracy is not measured")
    return dataset.with_warnings(notices + compare_published(dataset))


def parse_mat(content: bytes, name: str) -> MatContent:
    """Return the arrays of a `.mat` file; an error names the file."""
    try:
        return read_mat(content)
    except DataError as error:
        raise DataError(f"{name} cannot be used: {error}") from None


def find_mat(name: str) -> Source | None:
    """Answer the path of a `.mat` file; the name in records carries a hash of its content."""
    path = Path(name)
    if path.suffix.lower() != ".mat":
        return None
    if not is_plain(path):
        raise DataError(f"{name} cannot be read: there is no such file")
    content = read_file(path, name)
    arrays = parse_mat(content, name)
    card = make_card(path, hashlib.sha256(content).hexdigest(), "tabular", has_candidates=True)
    return Source(card, partial(build_own_dataset, card, arrays))


def build_own_dataset(card: DatasetCard, arrays: MatContent, data_dir: Path | None) -> Dataset:
    """Make the dataset of a user's own file."""
    return Dataset(arrays.features, arrays.candidates, arrays.labels, card)


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
