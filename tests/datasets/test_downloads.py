from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nacdrive.common.errors import UserError
from nacdrive.datasets import mnist, par
from nacdrive.datasets.downloads import DATA_SETS, DataSet, RemoteFile, fetch, find_data_set

CONTENT = b"digits " * 30_000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(SimpleHTTPRequestHandler):
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Address of a web server of one's own with the file ``digits``."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www/digits").write_bytes(CONTENT)
    Handler.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "www"))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


def data_set(*urls: str, md5: str = MD5, unpacked_md5: str = "") -> DataSet:
    return DataSet("made-up", "", "https://example.org", (RemoteFile("digits", md5, urls, unpacked_md5),))


class Bar:
    """Counts what pooch reports."""

    def __init__(self, name: str) -> None:
        self.name, self.total, self.done = name, 0, 0

    def update(self, size: int) -> None:
        self.done += size

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def test_a_file_is_fetched_once_with_a_bar(tmp_path: Path, server: str) -> None:
    bars: list[Bar] = []

    def bar(name: str) -> Bar:
        bars.append(Bar(name))
        return bars[-1]

    for _ in range(2):
        (path,) = fetch(data_set(server + "digits"), tmp_path / "data", bar=bar)
        assert path == tmp_path / "data/digits" and path.read_bytes() == CONTENT
    assert Handler.asked == ["/digits"]
    assert [(b.name, b.total, b.done) for b in bars] == [("digits", len(CONTENT), len(CONTENT))]


def test_the_second_address_is_tried_when_the_first_fails(tmp_path: Path, server: str) -> None:
    fetch(data_set(server + "absent", "http://127.0.0.1:9/digits", server + "digits"), tmp_path / "data")
    assert Handler.asked == ["/absent", "/digits"]
    with pytest.raises(UserError, match=r"digits could not be fetched: .*absent answers 404\."):
        fetch(data_set(server + "absent"), tmp_path / "other")


def test_without_a_network_one_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"http://127.0.0.1:9/digits cannot be reached \(is there a network\?\)"):
        fetch(data_set("http://127.0.0.1:9/digits"), tmp_path)


def test_content_with_another_checksum_is_never_kept(tmp_path: Path, server: str) -> None:
    with pytest.raises(UserError, match=f"sends has md5 {MD5}, expected was {'0' * 32}, so it was not kept"):
        fetch(data_set(server + "digits", md5="0" * 32), tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


def test_a_file_of_ones_own_is_not_overwritten(tmp_path: Path, server: str) -> None:
    (tmp_path / "digits").write_bytes(b"mine")
    with pytest.raises(UserError, match=f"is there and is not the published file .*expected {MD5}"):
        fetch(data_set(server + "digits"), tmp_path)
    assert (tmp_path / "digits").read_bytes() == b"mine" and not Handler.asked


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written .* give another --folder"):
        fetch(data_set("http://127.0.0.1:9/digits"), tmp_path / "file/data")


def test_the_published_content_packed_anew_will_do(tmp_path: Path) -> None:
    (tmp_path / "digits").write_bytes(gzip.compress(CONTENT, 1))
    packed = data_set("http://127.0.0.1:9/digits", md5="0" * 32, unpacked_md5=MD5)
    assert fetch(packed, tmp_path) == [tmp_path / "digits"]
    (tmp_path / "digits").write_bytes(CONTENT)
    with pytest.raises(UserError, match="is not the published file"):
        fetch(packed, tmp_path)


@pytest.mark.parametrize("name", ["pronostia", "xjtu-sy", "hust"])
def test_what_has_no_checksum_says_where_to_get_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"{name} has no address .*: get it from https://.* and put it into"):
        fetch(DATA_SETS[name], tmp_path)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown data set 'minst': did you mean 'mnist'"):
        find_data_set("minst")


def test_every_published_checksum_is_one() -> None:
    files = [file for known in DATA_SETS.values() for file in known.files]
    assert len(files) == 5
    for file in files:
        assert len(bytes.fromhex(file.md5)) == 16 and all(url.startswith("https://") for url in file.urls)
        assert all(url.endswith(file.name) for url in file.urls)


def test_what_is_fetched_is_what_is_read() -> None:
    files = {file.name: file for known in DATA_SETS.values() for file in known.files}
    for part, md5 in mnist.MD5.items():
        assert files[f"{part}-idx{mnist.idx_rank(part)}-ubyte.gz"].unpacked_md5 == md5
    assert files[par.FILE_NAME].md5 == par.MD5
