"""Opening files that are none, downloads that do not end, and values shown in few words."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plench import plain_files
from plench.data import download, load_dataset
from plench.data.download import download_file
from plench.data.sources import find_source
from plench.data.sources.base import RemoteFile
from plench.errors import DataError, PlenchError, UsageError
from plench.plain_files import NotPlainError, open_plain, read_plain
from plench.text import clean_text, short_repr
from tests.images.layouts import write_cifar10


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_only_plain_files_are_opened(pipe: Path, tmp_path: Path) -> None:
    with pytest.raises(NotPlainError, match="it is a named pipe, not a file"):
        open_plain(pipe)
    with pytest.raises(NotPlainError, match="it is a folder, not a file"):
        open_plain(tmp_path)
    with pytest.raises(NotPlainError, match="it is a device, not a file"):
        open_plain(os.devnull)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(NotPlainError, match="it is a socket, not a file"):
            open_plain(tmp_path / "s")
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "absent")
    with pytest.raises(OSError, match="File name too long"):
        open_plain(tmp_path / ("x" * 300))
    with pytest.raises(NotPlainError, match="null"):
        open_plain(str(tmp_path / "a\0b"))
    link = tmp_path / "link"
    (tmp_path / "file").write_bytes(b"abc")
    link.symlink_to(tmp_path / "file")
    assert read_plain(link, 3) == b"abc"
    with pytest.raises(NotPlainError, match="it is a link"):
        read_plain(link, 3, follow_links=False)
    with pytest.raises(NotPlainError, match="more than 2 bytes"):
        read_plain(link, 2)
    (tmp_path / "file").write_bytes(b"")
    assert read_plain(link, 0) == b""


def test_another_file_in_the_place_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was a file when it was looked at is a pipe when it is opened."""
    (tmp_path / "file").write_bytes(b"abc")
    os.mkfifo(tmp_path / "pipe")
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: real_open(tmp_path / "pipe", flags))
    with pytest.raises(NotPlainError, match="it is a named pipe"):
        plain_files.open_plain(tmp_path / "file")


def test_a_file_that_grows_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc" * 1000)
    real_fstat = os.fstat

    def shorter(descriptor: int) -> os.stat_result:
        found = list(real_fstat(descriptor))
        found[6] = 10  # what it says its size is
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", shorter)
    assert read_plain(path, 3000) == b"abc" * 1000
    with pytest.raises(NotPlainError, match="more than 2,999 bytes"):
        read_plain(path, 2999)


def test_pipes_in_place_of_data(tmp_path: Path, pipe: Path) -> None:
    folder = write_cifar10(tmp_path / "a")
    (folder / "data_batch_2").unlink()
    os.mkfifo(folder / "data_batch_2")
    with pytest.raises(DataError, match=r"data_batch_2 cannot be read .it is a named pipe"):
        load_dataset("CIFAR10", tmp_path / "a")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "cifar-10-python.tar.gz")
    with pytest.raises(DataError, match="it is a named pipe"):
        load_dataset("CIFAR10", tmp_path / "b")
    for label in "xy":
        (tmp_path / "images" / label).mkdir(parents=True)
        os.mkfifo(tmp_path / "images" / label / "a.png")
    with pytest.raises(DataError, match=r"a\.png cannot be read .it is a named pipe"):
        load_dataset(str(tmp_path / "images"))
    pipe.rename(tmp_path / "mine.npz")
    with pytest.raises(DataError, match="it is a named pipe"):
        load_dataset(str(tmp_path / "mine.npz"))
    (tmp_path / "MNIST").mkdir()
    os.mkfifo(tmp_path / "MNIST" / "train-images-idx3-ubyte")
    with pytest.raises(DataError, match="has neither"):
        load_dataset("MNIST", tmp_path)
    with pytest.raises(DataError, match="it is a named pipe"):
        download_file(RemoteFile("http://127.0.0.1:9/x", "x", "0" * 40), tmp_path / "mine.npz")


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".npz", "./" + "y" * 300, "a/\0b", "a/\0.npz"])
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(PlenchError):
        load_dataset(name)
    with pytest.raises(PlenchError):
        load_dataset("Lost", name)


def test_a_class_s_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images" / "x").mkdir(parents=True)
    (tmp_path / "images" / "y").mkdir()
    real = Path.iterdir

    def closed(path: Path) -> Iterator[Path]:
        if path.name == "y":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "iterdir", closed)
    with pytest.raises(DataError, match=r"y cannot be read .Permission denied"):
        load_dataset(str(tmp_path / "images"))


def test_show_value_and_clean_text() -> None:
    assert short_repr(10**5000) == "a number of 16,610 bits"
    assert short_repr("a" * 100) == repr("a" * 60) + "…"
    assert short_repr("\x1b[2J") == "'\\x1b[2J'"
    assert clean_text("plain äß \t\n") == "plain äß \t\n"
    hidden = "\x1b \x07 \u202e \x9b \ud800 \r \u2028"
    assert clean_text(hidden) == " ".join(["\N{REPLACEMENT CHARACTER}"] * 7)
    assert clean_text("a\nb", keep="") == "a\N{REPLACEMENT CHARACTER}b"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """A server that treats every connection as it is told."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    callback = socket.create_server(("127.0.0.1", 0))
    callback.settimeout(0.1)
    stopped = threading.Event()
    threads: list[threading.Thread] = []

    def start(answer: Callable[[socket.socket], None]) -> str:
        def loop() -> None:
            while not stopped.is_set():
                try:
                    connection, _ = callback.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.recv(10_000)
                    try:
                        answer(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        threads.append(thread)
        return f"http://127.0.0.1:{callback.getsockname()[1]}/file"

    yield start
    stopped.set()
    for thread in threads:
        thread.join()
    callback.close()


def drip(start: bytes) -> Callable[[socket.socket], None]:
    """Send a byte again and again, for a few seconds."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        for _ in range(30):
            connection.sendall(b"x")
            time.sleep(0.1)

    return answer


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nname: "])
def test_a_download_has_an_end(
    serve: Callable[[Callable[[socket.socket], None]], str],
    start: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the content or already in the head of the answer."""
    monkeypatch.setattr(download, "MAX_SECONDS", 0.5)
    url = serve(drip(start))
    with pytest.raises(DataError, match=r"was not fetched within 0\.5 seconds"):
        download_file(RemoteFile(url, "x", "0" * 40), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://[bad]/x", "nonsense", "http://127.0.0.1:99999/x", "http://a\nb/"]
)
def test_addresses_that_are_none(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="could not be fetched"):
        download_file(RemoteFile(url, "x", "0" * 40), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_sends_somewhere_else(
    serve: Callable[[Callable[[socket.socket], None]], str], tmp_path: Path
) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n")

    with pytest.raises(DataError, match="could not be fetched"):
        download_file(RemoteFile(serve(answer), "x", "0" * 40), tmp_path / "x")


def test_unknown_names_stay_usage_errors() -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        find_source("./absent")
