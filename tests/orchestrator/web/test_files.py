"""The files of the web page, and how they are served."""

from __future__ import annotations

import gzip
import re
from os.path import normpath

import httpx2

from deputize.orchestrator import web

FILES = sorted(path for path in web.FOLDER.rglob("*") if path.suffix in web.TYPES)
MOST_BYTES = 120_000


async def test_the_page_and_its_files_come_with_strict_headers_and_without_a_token(http: httpx2.AsyncClient) -> None:
    index = await http.get("/")
    assert index.status_code == 200
    named = re.findall(r'(?:src|href)="(web/[^"]+)"', index.text)
    imported = [
        f"web/{normpath(path.parent.relative_to(web.FOLDER) / name)}"
        for path in FILES
        for name in re.findall(r'from "(\.{1,2}/[^"]+)"', path.read_text("utf-8"))
    ]
    assert {*named, *imported} == {f"web/{path.relative_to(web.FOLDER)}" for path in FILES} - {"web/index.html"}
    for path in ("", *sorted({*named, *imported})):
        answer = await http.get(f"/{path}")
        suffix = f".{path.rpartition('.')[2]}" if path else ".html"
        assert answer.headers["content-type"] == f"{web.TYPES[suffix]}; charset=utf-8"
        policy = answer.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} < {*policy}
        assert {"require-trusted-types-for 'script'", "trusted-types 'none'"} < {*policy}
        assert not re.search(r"unsafe|\*|https?:", "".join(policy))
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-cache"
        again = await http.get(f"/{path}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["content-security-policy"] == answer.headers["content-security-policy"]


async def test_the_page_is_small_and_comes_packed_to_those_who_can_unpack_it(http: httpx2.AsyncClient) -> None:
    assert sum(len(gzip.compress(path.read_bytes())) for path in FILES) < MOST_BYTES
    plain = await http.get("/web/main.js", headers={"Accept-Encoding": "identity"})
    packed = await http.get("/web/main.js", headers={"Accept-Encoding": "br, gzip"})
    assert (packed.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
    assert packed.content == plain.content == (web.FOLDER / "main.js").read_bytes()
    refused = await http.get("/web/main.js", headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


async def test_nothing_else_is_served(http: httpx2.AsyncClient) -> None:
    for path in (
        "",
        "index.html",
        "__init__.py",
        "x.js",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "../app.py",
        "%2fetc%2fpasswd",
    ):
        assert (await http.get(f"/web/{path}")).status_code == 404, path


def test_no_file_is_long_or_makes_markup_of_text() -> None:
    assert len(FILES) > 10
    for path in FILES:
        text = path.read_text("utf-8")
        lines = text.splitlines()
        count = len(lines)  # else a failure prints them all
        assert count <= 300, path
        assert max(map(len, lines)) <= 120 or path.name == web.INDEX, path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", text), path
        assert not re.search(r"""\bstyle=|\bon\w+="|https?://(?!www\.w3\.org/2000/svg)""", text), path
