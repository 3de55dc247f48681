"""Files that say what is expected, with other content of the same form."""

from __future__ import annotations

import pytest

from deputize.worker.verification.expected_files import altered, is_named


@pytest.mark.parametrize(
    ("path", "data", "other"),
    [
        ("a.json", b'{"total": 19}', b'{"total": 20}'),
        ("a.expected", b"food: 19\n", b"gppe: 20\n"),
        ("a.json", b'{"version": 1, "slugs": {"A b": "a-b"}}', b'{"version": 2, "slugs": {"A b": "b-c"}}'),
        ("a.json", b'[true, null, 0.5, ["a"]]', b'[false, null, 1.5, ["b"]]'),
        ("a.json", b"{", b"{"),
        ("a.json", b"[" * 100_000, b"[" * 100_000),
        ("a.yml", b"name: x\nrows:\n  - a\n  - b: c1\n", b"name: y\nrows:\n  - b\n  - b: d2\n"),
        ("a.ini", b"[part]\nname=x\n", b"[part]\nname=y\n"),
        ("a.toml", b'[part]\nname = "x"\n', b'[part]\nname = "y"\n'),
        ("a.html", b"<b>a1</b>\n", b"<b>b2</b>\n"),
        ("a.png", b"\x89PNG", b"\x89PNG"),
    ],
)
def test_other_content_has_the_same_form(path: str, data: bytes, other: bytes) -> None:
    assert altered(path, data) == other


NAMED = [
    ("data/march.expected", 'totals() { cat "${1%.csv}.expected"; }'),
    ("tests/expected.json", "Path('tests/expected.json').read_text()"),
    ("tests/expected/a.txt", "open(Path('tests') / 'expected' / name)"),
    ("tests/golden/a.txt", 'open(f"tests/golden/{name}.txt")'),
    ("a_want.txt", "readFileSync(`${name}_want.txt`)"),
]
NOT_NAMED = [
    ("tests/expected.json", "def slug(text): return '-'.join(text.lower().split())"),
    ("tests/expected.json", "raise ValueError(f'expected a number, found {text}')  # as expected."),
    ("docs/reference/api.md", "total = reference + 1"),
    (".copier-answers.yml", "answers = []"),
    ("solution/package.json", "return solution"),
    ("src/gold/coins.txt", "gold_price = 3"),
    ("src/expected.py", "import src.expected.other"),
    ("data/march.csv", "open('data/march.csv')"),
]


@pytest.mark.parametrize(("path", "code"), NAMED)
def test_code_that_reads_what_is_expected_names_it(path: str, code: str) -> None:
    assert is_named(path, code)


@pytest.mark.parametrize(("path", "code"), NOT_NAMED)
def test_code_with_the_same_word_does_not_name_a_file(path: str, code: str) -> None:
    assert not is_named(path, code)
