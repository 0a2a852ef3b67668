"""Arrays, archives, MATLAB files and images made to fill memory or to make a reader stumble."""

import gzip
import io
import os
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from plench.data import files, load_dataset, unpack
from plench.data.archives import read_members
from plench.data.mat5 import read_matrices
from plench.data.sources import arrays
from plench.data.sources.idx import read_idx
from plench.errors import DataError


def write_npz(path: Path, packed: bool = False, **content: np.ndarray) -> str:
    (np.savez_compressed if packed else np.savez)(path, **content)  # type: ignore[operator]
    return str(path)


@pytest.mark.parametrize("label", [10**8, 10**12, 2**63 - 1, 2**64 - 1])
def test_labels_that_stand_for_too_many_classes(label: int, tmp_path: Path) -> None:
    labels = np.array([0, 1, label], np.uint64 if label >= 2**63 else np.int64)
    path = write_npz(tmp_path / "mine.npz", features=np.ones((3, 2)), labels=labels)
    with pytest.raises(DataError, match="classes; expected 2 to 1,000 for 3 rows"):
        load_dataset(path)


def test_many_classes_are_allowed_to_many_examples(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz", features=np.ones((1500, 2)), labels=np.arange(1500))
    assert load_dataset(path).n_classes == 1500


def test_zip_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "FREE_BYTES", 2**16)
    path = write_npz(
        tmp_path / "mine.npz", packed=True, features=np.zeros((1000, 100)), labels=np.arange(1000) % 5
    )
    with pytest.raises(DataError, match=r"unpacks to 8\d\d,\d\d\d; allowed are .* save it with numpy\.savez"):
        load_dataset(path)
    path = write_npz(tmp_path / "mine.npz", features=np.zeros((1000, 100)), labels=np.arange(1000) % 5)
    assert load_dataset(path).input_shape == (1000, 100)


def good_npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, features=np.arange(60.0).reshape(20, 3), labels=np.arange(20) % 3)
    return buffer.getvalue()


def patched(content: bytes, mark: bytes, offset: int, patch: bytes) -> bytes:
    place = content.rindex(mark) + offset
    return content[:place] + patch + content[place + len(patch) :]


ENTRY, END = b"PK\x01\x02", b"PK\x05\x06"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (patched(good_npz(), ENTRY, 10, b"\x0c\x00"), "packed by method 12"),
        (patched(good_npz(), ENTRY, 10, b"\x63\x00"), "packed by method 99"),
        (patched(good_npz(), ENTRY, 8, b"\x01\x00"), "encrypted or a patch"),
        (patched(good_npz(), ENTRY, 8, b"\x20\x00"), "encrypted or a patch"),
        (patched(good_npz(), ENTRY, 16, b"\x00\x00\x00\x01"), "checksum"),
        (patched(good_npz(), ENTRY, 20, b"\xff\xff\xff\x7f"), "shares bytes with another or is truncated"),
        (patched(good_npz(), ENTRY, 24, b"\xff\xff\xff\x0f"), "unpacks to|bytes"),
        (patched(good_npz(), ENTRY, 24, b"\xff\xff\xff\xff"), "directory is broken"),
        (patched(good_npz(), ENTRY, 28, b"\xff\xff"), "directory is broken"),
        (patched(good_npz(), ENTRY, 42, b"\x05\x00\x00\x00"), "shares bytes|begin where"),
        (patched(good_npz(), END, 12, b"\xff\xff\xff\x7f"), "directory"),
        (patched(good_npz(), END, 16, b"\xff\xff\xff\x7f"), "directory"),
        (patched(good_npz(), END, 4, b"\x01\x00"), "several parts"),
        (good_npz().replace(b"labels.npy", b"xabels.npy"), "an array 'xabels'|neither"),
        (good_npz()[:-22], "no zip archive"),
    ],
)
def test_forged_zip_archives(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(good_npz())
    assert load_dataset(str(path)).input_shape == (20, 3)
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_dataset(str(path))


def test_entries_that_share_bytes_or_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    array = io.BytesIO()
    np.save(array, np.ones((3, 2)))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("features.npy", array.getvalue())
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("features.npy", array.getvalue())
    with pytest.raises(DataError, match="two of its entries have one name"):
        load_dataset(str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("features.npy", array.getvalue())
        archive.writestr("labels.npy", array.getvalue())
        archive.infolist()[1].header_offset = 0
    with pytest.raises(DataError, match="shares bytes with another"):
        load_dataset(str(path))


def npy(head: str, values: bytes, version: int = 1) -> bytes:
    encoded = head.encode("latin1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(encoded)) + encoded + values


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2), }", b""), "bytes for an"),
        (
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 2), }", b""),
            "head of an array is broken",
        ),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 5000, b""), "broken"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 40 + ")}", bytes(8)), "too many"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 30 + ",)}", b""), "too many"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (3, 2), }", bytes(48)), "allowed are"),
        (
            npy("{'descr': '<M8[D]', 'fortran_order': False, 'shape': (3, 2), }", bytes(48)),
            "allowed are numbers",
        ),
        (npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3, 2), }", bytes(48)), "broken"),
        (
            npy("{'descr': '<f3', 'fortran_order': False, 'shape': (3, 2), }", bytes(18)),
            "allowed are numbers",
        ),
        (npy("{'descr': __import__('os'), 'fortran_order': False, 'shape': (3, 2), }", bytes(48)), "broken"),
        (npy("{'descr': '<f8', 'fortran_order': 0, 'shape': (3, 2), }", bytes(48)), "broken"),
        (npy("{'descr': '<f8', 'shape': (3, 2), }", bytes(48)), "broken"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }", bytes(48), 9), "no .npy file"),
        (npy("", b""), "broken"),
        (b"", "no .npy file"),
    ],
)
def test_forged_arrays(array: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    labels = io.BytesIO()
    np.save(labels, np.arange(3))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("features.npy", array)
        archive.writestr("labels.npy", labels.getvalue())
    with pytest.raises(DataError, match=message):
        load_dataset(str(path))


@pytest.mark.parametrize("packed", [False, True])
def test_arrays_are_read_as_numpy_reads_them(packed: bool, tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    values = random.rand(700, 60)
    for features in (
        values,
        np.asfortranarray(values),
        values.astype(">f4"),
        values.astype(np.float16),
        values > 0.5,
        np.ones((700, 1), np.int8),
    ):
        path = write_npz(tmp_path / "mine.npz", packed, features=features, labels=np.arange(700) % 3)
        found = arrays.read_npz(Path(path), "it")[1]["features"]
        assert found.dtype == features.dtype
        assert np.array_equal(found, features)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values, version=(2, 0))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", buffer.getvalue())
        with archive.open("labels.npy", "w", force_zip64=True) as stream:
            np.lib.format.write_array(stream, np.arange(700) % 3, version=(3, 0))
    assert np.array_equal(arrays.read_npz(Path(path), "it")[1]["features"], values)


def tar_of(*members: tuple[bytes, bytes, bytes]) -> bytes:
    """An archive of (name, type, content), without the checks of Python's writer."""
    blocks = []
    for name, kind, content in members:
        head = bytearray(512)
        head[: len(name)] = name
        head[124:136] = b"%011o\0" % len(content)
        head[156:157] = kind
        head[257:265] = b"ustar\x0000"
        head[148:156] = b"%06o\0 " % (256 + sum(head))
        blocks.append(bytes(head) + content + bytes(-len(content) % 512))
    return b"".join(blocks) + bytes(1024)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar_of((b"././@LongLink", b"L", b"x" * 2**17)), "a name has 131,072 bytes"),
        (tar_of((b"pax", b"x", b"x" * 2**17)), "a name has 131,072 bytes"),
        (tar_of((b"pax", b"x", b"abc path=x\n")), "no number"),
        (tar_of((b"pax", b"x", b"-5 path=x\n")), "no number"),
        (tar_of((b"pax", b"x", b"99 path=x\n")), "unknown way"),
        (tar_of((b"pax", b"x", b"11 pathxyz\n" * 3)), "unknown way"),
        (tar_of((b"pax", b"x", b"16 size=-1234567\n"), (b"a", b"0", b"")), "no number|unknown way"),
        (tar_of((b"pax", b"x", b"12 size=abc\n"), (b"a", b"0", b"")), "no number"),
        (tar_of((b"pax", b"x", b"22 GNU.sparse.major=1\n"), (b"a", b"0", b"")), "holes"),
        (tar_of(*[(b"long", b"L", b"x")] * 10_001), "more than 10,000 entries"),
        (tar_of((b"long", b"L", b"../x\0"), (b"a", b"0", b"")), "points out of its folder"),
        (tar_of((b"a", b"S", b"")), "a link or a device"),
        (tar_of((b"a", b"0", b"abc"))[:600], "truncated|has no file"),
        (tar_of((b"a", b"0", b"abc")).replace(b"00000000003", b"0000000000z"), "checksum|no number"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_forged_tar_archives(content: bytes, message: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=message):
        list(read_members(path, ["wanted"], "it"))


def test_tar_archives_of_every_format(tmp_path: Path) -> None:
    long = "f/" + "long" * 40
    contents = {"f/ä": b"1" * 700, "f/b": b"", "f/c": b"2" * 512, long: b"3"}
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for mode in ("w", "w:gz"):
            path = tmp_path / "x.tar.gz"
            names = [name for name in contents if kind != tarfile.USTAR_FORMAT or len(name) < 100]
            with tarfile.open(path, mode, format=kind) as tar:  # type: ignore[call-overload]
                tar.add(tmp_path, "f", recursive=False)
                for name in names:
                    info = tarfile.TarInfo(name)
                    info.size = len(contents[name])
                    info.mtime = 0.5 if kind == tarfile.PAX_FORMAT else 0
                    tar.addfile(info, io.BytesIO(contents[name]))
            backwards = names[::-1]
            assert dict(read_members(path, backwards, "it")) == {name: contents[name] for name in backwards}


def test_bombs_of_gzip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "FREE_BYTES", 2**16)
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(tar_of((b"a", b"0", bytes(2**22)))))
    with pytest.raises(DataError, match="unpacks to more than"):
        list(read_members(path, ["a"], "it"))
    path.write_bytes(gzip.compress(bytes(2**22)))
    with pytest.raises(DataError, match="unpacks to more than"):
        files.read_file(path, "it")
    noise = os.urandom(2**18)
    path.write_bytes(gzip.compress(noise[:1000]) + bytes(10) + gzip.compress(noise[1000:]))
    assert files.read_file(path, "it") == noise
    path.write_bytes(gzip.compress(noise) + b"abc")
    with pytest.raises(DataError, match="cannot be unpacked"):
        files.read_file(path, "it")
    monkeypatch.setattr(unpack, "MAX_PARTS", 10)
    path.write_bytes(gzip.compress(b"") * 20)
    with pytest.raises(DataError, match="more than 10 gzip files in a row"):
        files.read_file(path, "it")


def test_idx_of_many_axes() -> None:
    with pytest.raises(DataError, match="has 255 axes; allowed are at most 4"):
        read_idx(bytes([0, 0, 8, 255]) + struct.pack(">255I", *[1] * 255) + b"x", "it")


def mat_element(code: int, data: bytes) -> bytes:
    return struct.pack("<II", code, len(data)) + data + bytes(-len(data) % 8)


def mat_of(*elements: bytes) -> bytes:
    return b" " * 124 + struct.pack("<H", 0x0100) + b"IM" + b"".join(elements)


def mat_matrix(name: bytes, class_code: int, rows: int, columns: int, *values: bytes) -> bytes:
    head = mat_element(6, struct.pack("<II", class_code, 0)) + mat_element(
        5, struct.pack("<ii", rows, columns)
    )
    return mat_element(14, head + mat_element(1, name) + b"".join(values))


def test_sparse_matrices_that_are_nearly_nothing() -> None:
    """Three numbers that declare a gigabyte."""
    columns = 2**16
    indices = mat_element(5, struct.pack("<i", 0))
    starts = mat_element(5, struct.pack(f"<{columns + 1}i", 0, *[1] * columns))
    packed = zlib.compress(mat_matrix(b"data", 5, 2**10, columns, indices, starts, mat_element(9, bytes(8))))
    content = mat_of(struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(DataError, match=r"declares 1024×65536 entries; allowed are at most 16,777,216"):
        read_matrices(content, ["data"])


def test_matlab_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "FREE_BYTES", 2**16)
    packed = zlib.compress(mat_matrix(b"data", 6, 1000, 100, mat_element(9, bytes(800_000))))
    with pytest.raises(DataError, match=r"declares 800,0..; allowed are at most 65,536"):
        read_matrices(mat_of(struct.pack("<II", 15, len(packed)) + packed), ["data"])
    names = [mat_matrix(b"%d" % number, 6, 1, 1, mat_element(9, bytes(8))) for number in range(1001)]
    with pytest.raises(DataError, match="more than 1,000 variables"):
        read_matrices(mat_of(*names), ["data"])


def test_images_of_very_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image = pytest.importorskip("PIL.Image")
    for label in "xy":
        (tmp_path / label).mkdir()
        for number in range(3):
            Image.new("L", (300, 300)).save(tmp_path / label / f"{number}.png")
    assert load_dataset(str(tmp_path)).input_shape == (6, 1, 300, 300)
    monkeypatch.setattr(unpack, "FREE_BYTES", 2**16)
    with pytest.raises(DataError, match=r"0\.png have \d+0,000 pixels; files of"):
        load_dataset(str(tmp_path))


def parquet_of(path: Path, **columns: object) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), path, compression="zstd")
    assert path.stat().st_size < 100_000
    return str(path)
