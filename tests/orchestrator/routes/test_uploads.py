"""Uploads over HTTP: an archive that is sent, kept, named by a delegation, and the files of its run."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import resource
import stat
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path

import httpx2
import pytest

from deputize.orchestrator.client import Client
from deputize.shared.errors import Invalid
from deputize.shared.request import ArchiveWorkspace, DelegationRequest
from deputize.shared.workspaces import UPLOADS, upload_path
from tests.fake_model import Turn, text
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.serving import served
from tests.orchestrator.whole import Whole, writes
from tests.waiting import until
from tests.worker.workspace.archives import tar, zipped

ARCHIVE = zipped(("top/a.txt", b"before\n"))
DIGEST = hashlib.sha256(ARCHIVE).hexdigest()
UPLOAD = f"sha256:{DIGEST}"
MOST = 3_000_000


@pytest.fixture
async def url(whole: Whole) -> AsyncIterator[str]:
    """The API over the real service, whose workspaces are those of the worker beside it."""
    using = whole.bench.settings.model_copy(update={"no_token": True, "upload_max_bytes": MOST, "body_seconds": 0.5})
    async with served(whole.service, using) as url:
        yield url


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, timeout=30) as http:
        yield http


@pytest.fixture
def uploads(whole: Whole) -> Path:
    return whole.bench.settings.workspaces / UPLOADS


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def request(upload: str = UPLOAD) -> dict[str, object]:
    return {"task": "change it", "workspace": {"kind": "archive", "upload": upload}}


async def test_a_run_works_on_the_files_of_an_uploaded_archive(whole: Whole, http: httpx2.AsyncClient) -> None:
    answer = await http.put("/v1/uploads", content=ARCHIVE)
    assert (answer.status_code, answer.json()["upload"], answer.json()["bytes"]) == (201, UPLOAD, len(ARCHIVE))
    whole.model.script("change it", [Turn([writes("top/a.txt")]), Turn([text("done")])])
    accepted = await http.post("/v1/delegations", json=request())
    assert accepted.status_code == 202
    first = await whole.finished(await whole.service.get(accepted.json()["id"]))
    assert (first.success, first.files_modified) == (True, ["top/a.txt"])
    assert "-before\n+this is top/a.txt\n" in await whole.service.patch(first.delegation_id)

    upload_path(whole.bench.settings.workspaces, UPLOAD).unlink()
    again = await http.post(f"/v1/delegations/{first.delegation_id}/retry")
    assert (again.status_code, again.json()["errors"][0]["pointer"]) == (422, "/workspace/upload")
    assert "send the archive by PUT /v1/uploads" in again.json()["detail"]
    going_on = await http.post(f"/v1/delegations/{first.delegation_id}/continue", json={"text": "change it, too"})
    assert going_on.status_code == 202, "its files are those of the one that it continues"
    whole.model.script("change it, too", [Turn([text("done")])])
    assert (await whole.finished(await whole.service.get(going_on.json()["id"]))).files_modified == ["top/a.txt"]


async def test_only_the_user_of_the_service_can_read_an_upload(http: httpx2.AsyncClient, uploads: Path) -> None:
    before = time.time()
    answer = (await http.put("/v1/uploads", content=ARCHIVE)).json()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (uploads.parent, uploads, uploads / DIGEST)]
    assert modes == [0o700, 0o700, 0o600]
    assert (uploads / DIGEST).read_bytes() == ARCHIVE
    assert 86_400 - 60 < datetime.fromisoformat(answer["expiresAt"]).timestamp() - before < 86_400 + 60


async def test_the_same_content_is_kept_once_and_its_time_begins_anew(http: httpx2.AsyncClient, uploads: Path) -> None:
    first = await http.put("/v1/uploads", content=ARCHIVE)
    os.utime(uploads / DIGEST, (1, 1))
    again = await http.put("/v1/uploads", content=ARCHIVE)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["upload"] == UPLOAD
    assert (uploads / DIGEST).stat().st_mtime > time.time() - 60
    os.utime(uploads / DIGEST, (1, 1))
    assert (await http.post("/v1/delegations", json=request())).status_code == 202
    assert (uploads / DIGEST).stat().st_mtime > time.time() - 60
    assert names(uploads) == [DIGEST]


async def test_equal_uploads_at_the_same_time_are_one(http: httpx2.AsyncClient, uploads: Path) -> None:
    archive = b"PK\3\4" + os.urandom(2_500_000)
    answers = await asyncio.gather(*(http.put("/v1/uploads", content=archive) for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert {answer.json()["upload"] for answer in answers} == {f"sha256:{hashlib.sha256(archive).hexdigest()}"}
    assert names(uploads) == [hashlib.sha256(archive).hexdigest()]
    assert (uploads / names(uploads)[0]).read_bytes() == archive


RIGHT = base64.b64encode(hashlib.sha256(ARCHIVE).digest()).decode()
WRONG = base64.b64encode(hashlib.sha256(b"another").digest()).decode()


@pytest.mark.parametrize(
    ("query", "header", "status"),
    [
        (DIGEST, None, 201),
        (None, f"sha-256=:{RIGHT}:", 201),
        (None, f"sha-512=:{WRONG}{WRONG}:, sha-256=:{RIGHT}:", 201),
        (None, "md5=:abc=:", 201),
        (DIGEST, f"sha-256=:{RIGHT}:", 201),
        ("0" * 64, None, 422),
        (None, f"sha-256=:{WRONG}:", 422),
        (DIGEST, f"sha-256=:{WRONG}:", 422),
        (None, "sha-256=:AAAA:", 422),
        (DIGEST.upper(), None, 422),
        ("abc", None, 422),
    ],
)
async def test_a_body_with_another_digest_is_refused(
    http: httpx2.AsyncClient, uploads: Path, query: str | None, header: str | None, status: int
) -> None:
    params, headers = ({"sha256": query} if query else {}), ({"Content-Digest": header} if header else {})
    answer = await http.put("/v1/uploads", content=ARCHIVE, params=params, headers=headers)
    assert answer.status_code == status
    assert names(uploads) == ([DIGEST] if status == 201 else [])


async def chunks(count: int, size: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield bytes(size)


async def test_more_than_the_setting_allows_is_refused_with_the_number(http: httpx2.AsyncClient, uploads: Path) -> None:
    declared = await http.put("/v1/uploads", content=bytes(MOST + 1))
    streamed = await http.put("/v1/uploads", content=chunks(MOST // 1000 + 1, 1000))
    for answer in (declared, streamed):
        assert (answer.status_code, f"at most {MOST:,} are allowed" in answer.json()["detail"]) == (413, True)
    assert (await http.put("/v1/uploads", content=bytes(MOST))).status_code == 201
    assert len(names(uploads)) == 1


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"hello", b"hello" * 1000, bytes(511), b"\x28\xb5\x2f\xfd" + bytes(1000)], ids=len
)
async def test_what_begins_as_no_archive_is_refused(http: httpx2.AsyncClient, uploads: Path, content: bytes) -> None:
    answer = await http.put("/v1/uploads", content=content)
    assert answer.status_code == 422
    assert "send zip, or tar that is plain or compressed by gzip, bzip2 or xz" in answer.json()["detail"]
    assert names(uploads) == []


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
async def test_each_form_that_a_worker_reads_is_taken(http: httpx2.AsyncClient, mode: str) -> None:
    for content in (tar(("a", b"1"), mode=mode), tar(mode=mode)):
        assert (await http.put("/v1/uploads", content=content)).status_code == 201
    for old in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT):
        content = tar(("n" * 90, b"1"), mode=mode, format=old)
        assert (await http.put("/v1/uploads", content=content)).status_code == 201
    assert (await http.put("/v1/uploads", content=zipped())).is_success


async def test_a_compressed_body_is_refused(http: httpx2.AsyncClient) -> None:
    answer = await http.put("/v1/uploads", content=ARCHIVE, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415


async def test_nothing_is_left_of_an_upload_that_breaks_off(url: str, uploads: Path) -> None:
    host, port = url.removeprefix("http://").split(":")
    head = f"PUT /v1/uploads HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2000000\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head + bytes(1_500_000))
    await until(lambda: names(uploads))
    assert b" 408 " in await reader.readline()
    writer.close()
    await until(lambda: not names(uploads))
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(head + bytes(1_500_000))
    await until(lambda: names(uploads))
    writer.close()
    await until(lambda: not names(uploads))


@pytest.mark.parametrize("upload", [UPLOAD, "sha256:", f"sha256:{DIGEST}/../x", DIGEST, "../../etc/passwd", ""])
async def test_a_request_that_names_what_is_not_there_is_refused_with_its_pointer(
    http: httpx2.AsyncClient, upload: str
) -> None:
    answer = await http.post("/v1/delegations", json=request(upload))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/workspace/upload")


@pytest.fixture
def no_large_files() -> Iterator[None]:
    """Files of this process cannot grow beyond a size, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_200_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("no_large_files")
async def test_what_cannot_be_written_is_an_error_with_its_reason(http: httpx2.AsyncClient, uploads: Path) -> None:
    answer = await http.put("/v1/uploads", content=bytes(2_000_000))
    assert (answer.status_code, "File too large" in answer.json()["detail"]) == (503, True)
    assert names(uploads) == []


async def test_the_client_sends_an_archive_and_delegates_over_it(url: str) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield ARCHIVE[:10]
        yield ARCHIVE[10:]

    async with Client(url) as client:
        with pytest.raises(Invalid):
            await client.upload(content(), "0" * 64)
        first, again = [await client.upload(content(), DIGEST) for _ in range(2)]
        assert (first.upload.upload, first.replayed, again.replayed) == (UPLOAD, False, True)
        asked = DelegationRequest(task="x", workspace=ArchiveWorkspace(kind="archive", upload=UPLOAD))
        assert (await client.create(asked)).delegation.request == asked
