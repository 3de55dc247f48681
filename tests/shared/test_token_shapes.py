"""Credentials of others are known by their shape; what only looks like one stays as it is."""

from __future__ import annotations

import json
import random
import string
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.masking import SecretMask, partial_credential, search_for_shapes

MASK = SecretMask()
RANDOM = random.Random(7)


def some(length: int, characters: str = string.ascii_letters + string.digits) -> str:
    return "".join(RANDOM.choices(characters, k=length))


JWT = ".".join(
    b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "HS256"}, {"sub": "someone", "n": 1})
)
TOKENS = {
    "Anthropic": f"sk-ant-api03-{some(93)}AA",
    "OpenAI": f"sk-proj-{some(74)}T3BlbkFJ{some(74)}",
    "OpenAI, old": f"sk-{some(20)}T3BlbkFJ{some(20)}",
    "OpenRouter": f"sk-or-v1-{some(64, '0123456789abcdef')}",
    "AWS": f"AKIA{some(16, string.ascii_uppercase + '234567')}",
    "AWS, temporary": f"ASIA{some(16, string.ascii_uppercase + '234567')}",
    "GitHub": f"ghp_{some(36)}",
    "GitHub, of an app": f"ghs_{some(36)}",
    "GitHub, fine-grained": f"github_pat_{some(22)}_{some(59)}",
    "GitLab": f"glpat-{some(20)}",
    "Slack": f"xoxb-{some(12, string.digits)}-{some(13, string.digits)}-{some(24)}",
    "Google": f"AIza{some(35)}",
    "Stripe": f"sk_live_{some(24)}",
    "npm": f"npm_{some(36)}",
}
PEM = [
    "-----BEGIN RSA PRIVATE KEY-----",
    *(some(64) for _ in range(4)),
    "Zm9v==",
    "-----END RSA PRIVATE KEY-----",
]
AUTHORIZED = {
    "Authorization: Bearer {}": some(30),
    "authorization: token {}": some(20) + "1",
    "'Authorization': 'Basic {}'": b64encode(b"someone:passwords").decode(),
    '{{\\"Authorization\\": \\"Bearer {}\\"}}': some(24),
    "Proxy-Authorization: {}": "abc4567d",
    "aws_secret_access_key = {}": some(40),
    '"SecretAccessKey": "{}"': some(40),
    "postgres://admin:{}@db.test:5432/x": "hunter2hunter",
    "redis://:{}@host:6379/0": "pä55w0rd",
}


@pytest.mark.parametrize("around", ["{}", "key={}", "a '{}', b", "line\n{}\nline", "\\n{}\\n", "({})"])
@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_is_masked_wherever_it_stands(kind: str, around: str) -> None:
    text = around.format(TOKENS[kind])
    assert MASK.text(text) == around.format("***")
    event = json.dumps({"text": [text, {text: 1}]})
    assert json.loads(MASK.json(event)) == {"text": [around.format("***"), {around.format("***"): 1}]}


@pytest.mark.parametrize("kind", [kind for kind in TOKENS if not kind.startswith("AWS")])
@pytest.mark.parametrize("mark", ["", "…", "… [cut: 9000 characters, 200 allowed]", "...", "\n[… 3 lines …]\n"])
def test_what_a_cut_left_of_a_token_is_masked(kind: str, mark: str) -> None:
    token = TOKENS[kind]
    start = token.find("T3BlbkFJ") + 8 if "T3BlbkFJ" in token else 20
    assert MASK.text(f"it is {token[: start + 8]}{mark}") == f"it is ***{mark}"


@pytest.mark.parametrize(
    ("begun", "left"),
    [
        ("postgres://admin:{}", "hunter2hun"),
        ("redis://:{}", "pä5"),
        ("aws_secret_access_key = {}", some(39)),
        ("an id: {}", TOKENS["AWS"][:13]),
        ("postgres://admin:{}", "1234567"),
    ],
)
@pytest.mark.parametrize(
    "mark", ["…", "… [cut: 9000 characters, 20 allowed]", "\n[… 3 lines …]\n", "\n<system_hint a>"]
)
def test_what_a_cut_left_of_a_value_is_masked(begun: str, left: str, mark: str) -> None:
    assert MASK.text(begun.format(left) + mark) == begun.format("***") + mark
    assert json.loads(MASK.json(json.dumps([begun.format(left) + mark], ensure_ascii=False))) == [
        begun.format("***") + mark
    ]


@pytest.mark.parametrize("before", AUTHORIZED)
def test_a_value_is_masked_after_its_name(before: str) -> None:
    text = before.format(AUTHORIZED[before])
    assert MASK.text(f"curl -H {text} x") == f"curl -H {before.format('***')} x"
    assert json.loads(MASK.json(json.dumps([text]))) == [before.format("***")]


def test_of_a_jwt_the_claims_and_the_signature_are_masked() -> None:
    head = JWT.partition(".")[0]
    assert MASK.text(f"it is {JWT}.{some(43)}, no more") == f"it is {head}.***, no more"
    assert MASK.text(f"it is {JWT}…") == f"it is {head}.***…"


@pytest.mark.parametrize(
    "line",
    ["{}\n", "+{}\n", "    {}\n", "> {}\n", "{}\\n", "{}\r\n", "   12\t{}\n"],
    ids=["plain", "diff", "indent", "mail", "json", "dos", "list"],
)
@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_every_line_of_a_private_key_is_masked_and_none_is_lost(kind: str, line: str) -> None:
    pem = [each.replace("RSA PRIVATE KEY", kind) for each in PEM]
    text = "before\n" + "".join(map(line.format, pem)) + "after a_rather_long_identifier_of_a_program/path\n"
    masked = MASK.text(text)
    assert (
        masked
        == "before\n"
        + "".join(line.format(each if "---" in each else "***") for each in pem)
        + "after a_rather_long_identifier_of_a_program/path\n"
    )


def test_a_private_key_that_was_cut_is_masked_as_far_as_it_is_there() -> None:
    text = "\n".join(["-----BEGIN EC PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", "", *PEM[1:3], PEM[3][:9]])
    assert MASK.text(text) == "\n".join([*text.split("\n")[:3], "***", "***", PEM[3][:9]])


@pytest.mark.parametrize(
    "text",
    [
        "sk-ant-a is how keys begin, as in sk-ant-xxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "a task-progress of disk-usage: risk-ant-hill",
        "AKIAIOSFODNN7EXAMPLE and wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx, ghp_short",
        "send `Authorization: Bearer …` or Authorization: Bearer $TOKEN or Bearer <DEPUTIZE_TOKEN>",
        "Authorization: Basic realm, Authorization: Basic not-base64-at-all",
        "authorization = required, the authorization: see below",
        "redis://:PASSWORD@HOST:PORT/0, postgres://user:password@localhost/db, https://user:${PASS}@host",
        "https://example.org/@scope/package@1.2.3:80, git@github.com:owner/name.git, ssh://git@host:22/x",
        "see http://localhost:8080… or https://example.org:443... or http://host:80\n[… 3 lines …]\n",
        "if '-----BEGIN PRIVATE KEY-----' in text: raise a_very_long_identifier_of_ours_here",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAKIABCDEFGHIJKLMNOPQ",
        "dlg_01HZXKQ7YJ8N5V3W2R4T6P9M0B, 3f786850e387550fdab836ed7e6dc881de23001b, npm_config_registry=x",
        "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0 eyJhbGciOiJIUzI1NiJ9 is a head",
        "prm_01m8ptemzzszn7d2kr0a7t9ghp_0badc0de",
        "prm_01m8ptemzzszn7d2kr0a7t9ghs_01234567… waits",
        "of prm_01m8ptemzzszn7d2kr0a7t9xhf_abcdefab",
        "prm_01m8ptemzzszn7d2kr0a7tgnpm_abcdef12",
        "mcp__repo__npm_dependencies",
        "scripts/npm_packages",
        "hf_tokenizer…",
    ],
)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert MASK.text(text) == text
    assert json.loads(MASK.json(json.dumps([text, {text: 1}], ensure_ascii=False))) == [text, {text: 1}]


def test_a_token_after_what_resembles_an_id_is_masked() -> None:
    token = TOKENS["GitHub"]
    assert MASK.text(f"prm_{token}, prm_01m8ptemzzszn7d2kr0a7t9_{token}") == "prm_***, prm_01m8ptemzzszn7d2kr0a7t9_***"
    assert MASK.text(f"prm_01m8ptemzzszn7d2kr0a7t9ghp_0badc0de={token}").endswith("=***")


@given(
    st.lists(st.integers(1, 60), max_size=12), st.sampled_from([*TOKENS.values(), f"{JWT}.{some(43)}", "\n".join(PEM)])
)
def test_a_token_split_over_frames_is_found_when_open_ends_wait(cuts: list[int], token: str) -> None:
    text, sent, kept = f"It is {token}\n that is all.", "", ""
    for part in [text[a:b] for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True)]:
        kept += part
        ready = kept[: len(kept) - MASK.open_end(kept)]
        sent, kept = sent + MASK.text(ready), kept[len(ready) :]
    assert sent + MASK.text(kept) == MASK.text(text)


@pytest.mark.parametrize("before", AUTHORIZED)
def test_a_named_value_split_over_frames_is_found_as_well(before: str) -> None:
    text = f"It is {before.format(AUTHORIZED[before])} and more"
    for cut in range(1, len(text)):
        first = text[: cut - MASK.open_end(text[:cut])]
        assert MASK.text(first) + MASK.text(text[len(first) :]) == MASK.text(text), text[:cut]


@pytest.mark.parametrize("text", ["", "nothing", "ends in keys", "a line\n", "-----BEGIN CERTIFICATE-----\nabc "])
def test_ordinary_text_is_not_held_back(text: str) -> None:
    assert MASK.open_end(text) == 0


def test_a_block_or_a_token_without_an_end_is_not_held_back_for_ever() -> None:
    assert MASK.open_end("-----BEGIN PRIVATE KEY-----\n" + "a b\n" * 5000) == 0
    assert MASK.open_end("sk-ant-" + "a" * 10_000) == 0


def test_half_characters_hide_nothing() -> None:
    assert MASK.text(f"\ud800 {TOKENS['GitHub']} é") == "\ud800 *** é"
    assert SecretMask(["another-secret"]).text("\ud800 another-secret") == "\ud800 ***"
    assert not search_for_shapes()("é an ordinary text")


def test_a_text_is_searched_in_time_that_grows_with_its_length_only() -> None:
    for piece in (
        "eyJ",
        "sk-ant-",
        "Authorization: ",
        "://a:",
        "-----BEGIN PRIVATE KEY-----\n",
        "sk-T3BlbkFJ",
        "secret_access_key",
    ):
        MASK.text(piece * (200_000 // len(piece)))


def test_all_of_a_block_that_has_not_ended_waits() -> None:
    begun = f"-----BEGIN PRIVATE KEY-----\n{some(64)}\n{some(20)}"
    assert partial_credential(f"a key: {begun}") == len(begun)
