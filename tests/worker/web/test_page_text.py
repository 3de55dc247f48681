"""Pages made text: their characters, and their conversion in a process of its own."""

from __future__ import annotations

import asyncio
import codecs
import json
import subprocess
import sys
import time

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.web import converter
from deputize.worker.web.fetch import MAX_CONVERSIONS, MAX_PDF_BYTES, WebPage, decode_body, is_utf8, page_text
from tests.processes.leaks import descendants
from tests.waiting import until

TEXT = "Grüße, 日本語"


@pytest.mark.parametrize(
    ("body", "declared", "text"),
    [
        (TEXT.encode(), None, TEXT),
        (TEXT.encode(), "utf-8", TEXT),
        (TEXT.encode(), "UTF8", TEXT),
        (codecs.BOM_UTF8 + TEXT.encode(), "shift_jis", TEXT),
        (codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"), None, TEXT),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "utf-8", TEXT),
        (TEXT.encode("utf-16-le"), "utf-16", TEXT),
        (TEXT.encode("utf-16-be"), "utf-16be", TEXT),
        ("日本語".encode("shift_jis"), "Shift_JIS", "日本語"),
        ("日本語".encode("euc_jp"), "euc-jp", "日本語"),
        ("日本語".encode("iso2022_jp"), "iso-2022-jp", "日本語"),
        ("中文".encode("gb18030"), "gb2312", "中文"),
        ("中文".encode("big5"), "big5", "中文"),
        ("한국어".encode("cp949"), "euc-kr", "한국어"),
        ("Привет".encode("koi8-r"), "koi8-r", "Привет"),
        ("Привет".encode("cp1251"), "windows-1251", "Привет"),
        ("Grüße – €".encode("cp1252"), "iso-8859-1", "Grüße – €"),
        ("Grüße – €".encode("cp1252"), "us-ascii", "Grüße – €"),
        ("Grüße".encode("cp1252"), None, "Grüße"),
        ("Grüße".encode("cp1252"), "utf-8", "Gr\ufffd\ufffde"),
        (TEXT.encode(), "shift_jis", TEXT),
        (TEXT.encode(), "no-such-charset", TEXT),
        (b"x", "", "x"),
        (b"", "utf-16", ""),
    ],
)
def test_a_text_is_read_in_its_charset(body: bytes, declared: str | None, text: str) -> None:
    assert decode_body(body, declared) == text


@pytest.mark.parametrize(
    "head",
    [
        b'<meta charset="shift_jis">',
        b"<META CHARSET=Shift_JIS >",
        b'<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">',
        b'<?xml version="1.0" encoding="Shift_JIS"?>',
    ],
)
def test_markup_declares_its_charset_itself(head: bytes) -> None:
    body = head + "日本語".encode("shift_jis")
    assert decode_body(body, None, markup=True).endswith("日本語")
    assert decode_body(body, "utf-8", markup=True).endswith("日本語")
    assert not decode_body(body, None).endswith("日本語")


def test_markup_in_single_bytes_that_calls_itself_utf_16_is_not() -> None:
    assert decode_body(b'<meta charset="utf-16"><p>plain</p>', None, markup=True).endswith("<p>plain</p>")


@pytest.mark.parametrize(
    "codec",
    ["zlib", "base64", "rot13", "idna", "punycode", "undefined", "unicode_escape", "utf-7", "mbcs", "a\0b", "é"],
)
def test_codecs_that_are_no_charsets_of_pages_are_not_used(codec: str) -> None:
    assert decode_body(b"\\u0041 eJwDAAAAAAE= +AEE-", codec) == "\\u0041 eJwDAAAAAAE= +AEE-"


@pytest.mark.parametrize("declared", [None, "utf-8", "shift_jis", "gb18030", "utf-16"])
def test_the_half_character_at_the_end_of_what_was_cut_is_left_out(declared: str | None) -> None:
    body = ("日" * 100).encode(declared or "utf-8")
    body = body.removeprefix(codecs.BOM_UTF16_LE)[:-1]
    assert decode_body(body, declared, cut=True) == "日" * 99


def test_every_byte_yields_a_text() -> None:
    body = bytes(range(256))
    for declared in (None, "utf-8", "cp1252", "shift_jis", "utf-16", "gb18030", "iso-2022-jp", "big5"):
        assert decode_body(body, declared)


def test_what_is_text_beyond_doubt() -> None:
    assert is_utf8("日本".encode(), cut=False)
    assert is_utf8("日本".encode()[:-1], cut=True)
    assert is_utf8(codecs.BOM_UTF16_LE + b"a\0", cut=False)
    assert not is_utf8("日本".encode()[:-1], cut=False)
    assert not is_utf8(b"a\0b", cut=False)


SLOW = b"<b><i><p>" * 200_000
"""A page that takes seconds: its tags are never closed."""


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        drawn = f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET"
        fonts = "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] {fonts} /Contents {5 + 2 * number} 0 R >>"
        )
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    out, places = b"%PDF-1.4\n", list[int]()
    for number, text in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode()
    rows = "".join(f"{place:010} 00000 n \n" for place in places)
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{rows}"
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + (table + trailer).encode()


def page(body: bytes, content_type: str = "text/html", *, cut: bool = False) -> WebPage:
    return WebPage("https://docs.example/a", 200, content_type, None, body, cut)


@pytest.mark.requirement("S003-040")
@pytest.mark.parametrize("content_type", ["application/pdf", "application/octet-stream", ""])
async def test_a_pdf_becomes_the_text_of_its_pages(content_type: str) -> None:
    text, cut = await page_text(page(pdf("Hello there", "Second page"), content_type))
    assert (text, cut) == ("[page 1]\nHello there\n\n[page 2]\nSecond page", False)


@pytest.mark.parametrize("body", [b"%PDF-1.4 no more than this", b"", pdf("x")[:200]])
async def test_a_broken_pdf_is_reported_as_broken(body: bytes) -> None:
    with pytest.raises(ToolError, match=r"docs\.example/a: the page cannot be read as pdf: .*Error") as caught:
        await page_text(page(body, "application/pdf"))
    assert caught.value.type is ErrorType.NOT_TEXT


async def test_a_pdf_on_which_the_library_itself_fails_may_be_broken() -> None:
    body = pdf("x").replace(b"trailer <<", b"trailer 0<")
    with pytest.raises(ToolError, match="its pdf cannot be read; it may be corrupt") as caught:
        await page_text(page(body, "application/pdf"))
    assert caught.value.type is ErrorType.NOT_TEXT


async def test_half_a_pdf_is_not_read() -> None:
    with pytest.raises(ToolError, match=rf"is a PDF of more than {MAX_PDF_BYTES >> 20} MiB"):
        await page_text(page(pdf("x"), "application/pdf", cut=True))


def test_without_its_package_a_pdf_names_what_is_missing() -> None:
    asked = json.dumps({"kind": "pdf", "url": ""}).encode() + b"\n" + pdf("x")
    nothing_installed = [sys.executable, "-I", "-S", converter.__file__]
    done = subprocess.run(nothing_installed, input=asked, capture_output=True, check=True)
    assert json.loads(done.stdout) == {
        "error": "text of PDFs can only be read where the package pypdf is installed: the operator can add it with "
        "the extra 'pdf' of deputize"
    }


async def test_while_a_slow_page_is_read_the_loop_goes_on() -> None:
    gaps, last = list[float](), time.monotonic()
    loop = asyncio.get_running_loop()

    def tick() -> None:
        nonlocal last, timer
        now = time.monotonic()
        gaps.append(now - last)
        last, timer = now, loop.call_later(0.005, tick)

    timer = loop.call_soon(tick)
    before = time.monotonic()
    text, _ = await page_text(page(SLOW[: len(SLOW) // 3]))
    timer.cancel()
    assert text == ""
    assert max(gaps) < (time.monotonic() - before) * 0.75


async def test_a_cancelled_reading_leaves_no_process() -> None:
    before = descendants()
    reading = asyncio.create_task(page_text(page(SLOW)))
    await until(lambda: descendants() - before)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert descendants() <= before


async def test_not_more_pages_than_there_are_cores_are_read_at_once() -> None:
    before = descendants()
    readings = [asyncio.create_task(page_text(page(SLOW))) for _ in range(MAX_CONVERSIONS + 2)]
    await until(lambda: len(descendants() - before) == MAX_CONVERSIONS)
    for reading in readings:
        reading.cancel()
    await asyncio.gather(*readings, return_exceptions=True)
    assert descendants() <= before


async def test_a_page_that_kills_its_reader_is_an_error() -> None:
    before = descendants()
    reading = asyncio.create_task(page_text(page(SLOW)))
    await until(lambda: descendants() - before)
    (pid,) = descendants() - before
    subprocess.run(["kill", "-9", str(pid)], check=True)
    with pytest.raises(ToolError, match="its html cannot be read; it may be corrupt"):
        await reading


async def test_a_small_page_that_would_become_an_enormous_text_is_cut() -> None:
    rows = b"<tr><td colspan=1000000 rowspan=1000000>x</td></tr>" * 5000
    text, cut = await page_text(page(b"<table>" + rows + b"</table>"))
    assert cut
    assert len(text) <= converter.MAX_CHARS


async def test_what_was_cut_on_the_way_is_still_marked_as_cut() -> None:
    assert await page_text(page(b"<p>half a pa", cut=True)) == ("half a pa", True)
    assert await page_text(page("ä".encode()[:1] + b"", "text/plain", cut=True)) == ("", True)
