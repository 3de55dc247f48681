"""Which bytes are text, in which encoding, and what binary data is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.text.encodings import PLAIN, encoding_of, kind_of, other_encoding
from deputize.worker.text.textfile import decode

TEXTS = {
    "ja": "日本語の文章をいくつか書きます。これはテストです。\n設定ファイルを読み込み、結果を表示する。",
    "zh": "这是一个测试文件。里面有很多中文字符。\n我们需要读取配置并显示结果。",
    "tw": "這是一個測試檔案。裡面有很多中文字元。\n我們需要讀取設定並顯示結果。",
    "ko": "이것은 테스트 파일입니다. 설정을 읽고 결과를 표시합니다.\n한국어 문장을 몇 개 적습니다.",
    "en": "A few words in a line, and\r\nanother line of them.",
}


@pytest.mark.parametrize(
    ("language", "encoding", "name"),
    [
        ("ja", "cp932", "Shift_JIS"),
        ("ja", "euc_jp", "EUC-JP"),
        ("zh", "gbk", "GB18030"),
        ("zh", "gb18030", "GB18030"),
        ("tw", "big5", "Big5"),
        ("ko", "euc_kr", "EUC-KR"),
        ("en", "utf-16-le", "utf-16le"),
        ("en", "utf-16-be", "utf-16be"),
        ("en", "utf-32-le", "utf-32-le"),
        ("en", "cp1252", None),
        ("ja", "utf-8", None),
    ],
)
def test_an_encoding_is_recognized_by_its_form(language: str, encoding: str, name: str | None) -> None:
    data = TEXTS[language].encode(encoding)
    assert other_encoding(data) == name
    file = decode(data, "a.txt")
    assert file.text == TEXTS[language]
    assert file.to_bytes(file.text) == data


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "cp866"])
def test_an_encoding_that_cannot_be_told_from_its_like_is_not_guessed(encoding: str) -> None:
    data = "Это тестовый файл: буквы одного языка".encode(encoding)
    assert encoding_of(data) is None
    assert kind_of(data) == "binary data"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\0\1\2", "binary data"),
        (b"\x89PNG\r\n\x1a\n\0\0text", "a PNG image"),
        (b"\x7fELF\0text and more text", "an ELF program or library"),
        (b"BM\x10\0\0\0\1\2\3", "a BMP image"),
        (b"name.txt" + b"\0" * 249 + b"ustar\0" + b"text " * 99, "a tar archive"),
        (b"RIFF\x10\0\0\0WAVEfmt \x10", "a WAV sound"),
        (bytes(range(128, 256)) * 4, "binary data"),
        (b"words and numbers" + bytes(range(32)) * 9, "binary data"),
    ],
)
def test_binary_data_is_named_by_its_kind(data: bytes, kind: str) -> None:
    assert encoding_of(data) is None
    assert kind_of(data) == kind


def test_programs_and_compiled_files_are_binary() -> None:
    compiled = compile("\n".join(f"name_{n} = 'a text {n}'" for n in range(99)), "a.py", "exec").co_code
    for data in (Path(sys.executable).read_bytes()[:8192], b"\xa7\r\r\n\0\0\0\0\x86yIc" + compiled):
        assert encoding_of(data) is None


words = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=20, max_size=40)


@given(st.lists(words, min_size=2, max_size=5), st.integers(1, 999))
def test_a_text_with_runs_of_nul_is_text(parts: list[str], nuls: int) -> None:
    data = ("\0" * nuls).join(parts).encode()
    assert encoding_of(b"log\n" + data) == PLAIN


@pytest.mark.parametrize("data", [b"BM and MZ\0begin a text, too", b"x\0\n", b"\0", b"key\0value\0"])
def test_a_nul_alone_makes_no_text_binary(data: bytes) -> None:
    assert encoding_of(data) == PLAIN


def test_a_character_that_the_encoding_lacks_is_refused_by_name() -> None:
    file = decode(TEXTS["ja"].encode("cp932"), "a.txt")
    with pytest.raises(ToolError, match="probably Shift_JIS encoding, which has no character '🚀'") as refused:
        file.to_bytes(file.text + "🚀")
    assert refused.value.type is ErrorType.INVALID_TOOL_PARAMS
