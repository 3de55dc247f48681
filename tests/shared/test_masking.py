"""What is known to be secret is found in every form, and in every piece that a cut leaves."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.shared.masking import MIN_SECRET, PIECE, SecretMask

KEY = "sk-ant-api03-Zk9_hWq2LpXv7RtY4uMbN8cD"
QUOTED = 'pa"ss\\wo<rd>&\n12 é'
SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=MIN_SECRET, max_size=60).filter(
    lambda secret: len(set(secret)) > 5
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="*"), max_size=40)


def encodings(secret: str) -> list[str]:
    escaped = json.dumps(secret)[1:-1]
    return [
        secret,
        escaped,
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(escaped)[1:-1],
        repr(secret)[1:-1],
        html.escape(secret),
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        secret.encode().hex(),
        secret.encode().hex().upper(),
    ]


@pytest.mark.parametrize("secret", [KEY, QUOTED, "8letters", "https://a.test/?key=1&b=2"])
def test_every_common_encoding_of_a_secret_is_masked(secret: str) -> None:
    mask = SecretMask([secret])
    assert [mask.text(f"before {form} after") for form in encodings(secret)] == ["before *** after"] * 11


@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_masked_wherever_in_the_encoded_text_the_secret_stands(before: bytes, encode: type) -> None:
    masked = SecretMask([KEY]).text(encode(before + KEY.encode() + b" and more").decode())
    assert "***" in masked
    rest = base64.b64decode(masked.replace("-", "+").replace("_", "/").partition("***")[0] + "==")
    assert KEY[:3].encode() not in rest


def test_each_of_several_secrets_is_masked_and_the_longest_first() -> None:
    mask = SecretMask(["token-one", "token-one-and-more", "another-value"])
    assert mask.text("token-one-and-more, another-value, token-one") == "***, ***, ***"


def test_what_is_too_short_to_be_a_secret_is_left_alone() -> None:
    assert SecretMask(["", "short"]).text("a short text") == "a short text"


@pytest.mark.parametrize(
    ("cut", "masked"),
    [
        (f"curl -H {KEY[:20]}", "curl -H ***"),
        (f"curl -H {KEY[:9]}… [cut: 90 characters]", "curl -H ***… [cut: 90 characters]"),
        (f"curl -H {KEY[:9]}...", "curl -H ***..."),
        (f"{KEY[-9:]} is its end", "*** is its end"),
        (f"[… 12 characters left out …]\n{KEY[-9:]} x", "[… 12 characters left out …]\n*** x"),
        (f"in the middle {KEY[4:30]} of it", "in the middle *** of it"),
        ("sk-ant-a is how keys begin", "sk-ant-a is how keys begin"),
    ],
)
def test_a_secret_that_was_cut_is_masked_as_far_as_it_is_there(cut: str, masked: str) -> None:
    assert SecretMask(["another-secret", KEY]).text(cut) == masked


def test_a_few_letters_of_a_secret_are_a_word_like_any_other() -> None:
    assert SecretMask(["8letters"]).text("it ends in 8let") == "it ends in 8let"


def test_a_word_that_begins_a_short_secret_stays_a_word() -> None:
    mask = SecretMask(["hostel-k1"])
    row = "hostel-7b of [models.hostel] at https://hostel.example.org"
    assert mask.text(row) == row
    assert mask.text("key hostel-k1, hostel-k…, hostel-k") == "key ***, ***…, ***"


def test_a_piece_that_fits_in_several_places_of_a_secret_is_masked_once() -> None:
    assert SecretMask(["abcdefgh" * 4]).text("cdefgh" + "abcdefgh" * 2 + "ab.") == "***."


@given(SECRETS, TEXTS, TEXTS)
@settings(max_examples=200)
def test_no_piece_of_a_secret_survives_in_json(secret: str, before: str, after: str) -> None:
    mask = SecretMask([secret])
    event = {"text": before + secret + after, "list": [secret, {secret: 1}], "number": 1}
    masked = json.loads(mask.json(json.dumps(event, ensure_ascii=False)))
    kept = json.dumps(masked, ensure_ascii=False)
    pieces = {secret[at : at + PIECE] for at in range(max(1, len(secret) - PIECE + 1))}
    assert not [piece for piece in pieces if json.dumps(piece, ensure_ascii=False)[1:-1] in kept]
    assert masked["number"] == 1


@given(TEXTS)
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    mask = SecretMask(["\ue000 private use characters \ue001"])
    event = json.dumps({"text": text, "at": 1.50}, ensure_ascii=False)
    assert (mask.text(text), mask.json(event)) == (text, event)


@pytest.mark.parametrize(("text", "held"), [("the key sk-an", 5), ("nothing", 0), ("", 0), ("ends in s", 1)])
def test_the_end_of_a_text_that_may_go_on_as_a_secret_is_known(text: str, held: int) -> None:
    assert SecretMask([KEY]).open_end(text) == held


@given(st.lists(st.integers(1, 40), max_size=8))
def test_a_secret_split_over_frames_is_found_when_open_ends_wait(cuts: list[int]) -> None:
    mask, text, sent, kept = SecretMask([KEY]), f"It is {KEY}, that is all.", "", ""
    for part in [text[a:b] for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True)]:
        kept += part
        ready = kept[: len(kept) - mask.open_end(kept)]
        sent, kept = sent + mask.text(ready), kept[len(ready) :]
    assert sent + mask.text(kept) == "It is ***, that is all."
