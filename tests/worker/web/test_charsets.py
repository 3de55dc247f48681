"""Bytes as text: whatever is claimed, there is a text."""

from __future__ import annotations

import codecs

import pytest

from deputize.worker.web.fetch import decode_body, is_utf8

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
def test_markup_says_its_charset_itself(head: bytes) -> None:
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


def test_every_byte_gives_a_text() -> None:
    body = bytes(range(256))
    for declared in (None, "utf-8", "cp1252", "shift_jis", "utf-16", "gb18030", "iso-2022-jp", "big5"):
        assert decode_body(body, declared)


def test_what_is_text_beyond_doubt() -> None:
    assert is_utf8("日本".encode(), cut=False)
    assert is_utf8("日本".encode()[:-1], cut=True)
    assert is_utf8(codecs.BOM_UTF16_LE + b"a\0", cut=False)
    assert not is_utf8("日本".encode()[:-1], cut=False)
    assert not is_utf8(b"a\0b", cut=False)
