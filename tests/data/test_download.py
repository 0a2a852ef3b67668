import os
import stat
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from plench.data import download_dataset, sources
from plench.data.readers import hash_git_blob
from plench.data.sources import base
from plench.data.sources.base import RemoteFile
from plench.errors import DataError, UsageError

CONTENT = b"the public bytes" * 1000


class Handler(BaseHTTPRequestHandler):
    requests = 0

    def do_GET(self):
        Handler.requests += 1
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:100] if self.path == "/short" else CONTENT)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Handler.requests = 0
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()
    thread.join()


def remote(url, sha1=None):
    return RemoteFile(url, "some file.mat", sha1 or hash_git_blob(CONTENT))


def test_the_digest_is_that_of_git():
    assert hash_git_blob(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # git's well-known empty blob


def test_the_digest_is_that_of_the_real_files(real_data):
    from plench.data.sources import find_source

    for name in ("Lost", "MSRCv2", "Birdsong", "Italian"):
        (file,) = find_source(name).files
        assert hash_git_blob((real_data / "tabular" / file.path).read_bytes()) == file.git_sha1


def test_a_file_is_fetched_verified_and_not_fetched_again(server, tmp_path):
    path = tmp_path / "new" / "some file.mat"
    assert remote(f"{server}/file").download(path) == path
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(path.parent) == [path.name]
    remote(f"{server}/file").download(path)
    assert Handler.requests == 1


@pytest.mark.parametrize(
    ("page", "sha1", "message"),
    [
        ("file", "0" * 40, "is not the known file"),
        ("short", None, "is not the known file|could not be fetched"),
        ("missing", None, "could not be fetched .*404"),
    ],
)
def test_what_cannot_be_verified_leaves_nothing_behind(server, tmp_path, page, sha1, message):
    with pytest.raises(DataError, match=message):
        remote(f"{server}/{page}", sha1).download(tmp_path / "some file.mat")
    assert os.listdir(tmp_path) == []


def test_an_endless_answer_is_cut_off(server, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "MAX_BYTES", 1000)
    with pytest.raises(DataError, match="sends more than 1,000 bytes"):
        remote(f"{server}/file").download(tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_a_file_that_differs_is_not_overwritten(server, tmp_path):
    path = tmp_path / "some file.mat"
    path.write_bytes(b"mine")
    with pytest.raises(DataError, match="exists and is not the public file"):
        remote(f"{server}/file").download(path)
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/file", "http://[::1", "nonsense", "http://a\nb/"])
def test_addresses_without_a_server_are_our_error(url, tmp_path):
    with pytest.raises(DataError, match="could not be fetched"):
        remote(url).download(tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_sources_are_tried_in_turn_and_the_checksum_decides(server, tmp_path):
    missing, short, good = (f"{server}/{page}" for page in ("missing", "short", "file"))
    file = RemoteFile(missing, "file", hash_git_blob(CONTENT), mirrors=(short, good, good))
    assert file.download(tmp_path / "file").read_bytes() == CONTENT
    assert Handler.requests == 3
    with pytest.raises(DataError, match=rf"{missing} could not be fetched .*; {short} .*; nothing was saved"):
        RemoteFile(missing, "file", hash_git_blob(CONTENT), mirrors=(short,)).download(tmp_path / "other")
    assert os.listdir(tmp_path) == ["file"]
    mirrored = [
        name for name in sources.dataset_names() for f in sources.find_source(name).files if f.mirrors
    ]
    assert mirrored == ["Birdsong", "Lost", "Mirflickr", "MSRCv2", "SoccerPlayer", "YahooNews"]


def test_datasets_are_downloaded_by_name(server, tmp_path, monkeypatch):
    source = sources.find_source("Lost")
    local = type(source)(source.card, source.load, (remote(f"{server}/file"),))
    monkeypatch.setattr(sources, "find_source", lambda name: local)
    assert download_dataset("Lost", tmp_path) == [tmp_path / "some file.mat"]


def test_datasets_without_public_files_say_so(tmp_path):
    with pytest.raises(DataError, match="English cannot be downloaded: no public raw file is known"):
        download_dataset("English", tmp_path)
    with pytest.raises(DataError, match="built in"):
        download_dataset("Digits_USS", tmp_path)
    with pytest.raises(UsageError, match="unknown dataset"):
        download_dataset("Nonesuch", tmp_path)
