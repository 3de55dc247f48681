"""No secret of a worker leaves it, in nothing that a run shows or sends."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from celery import Celery

from deputize.shared import log
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import artifacts_key, channel, record_key
from deputize.shared.settings import Settings
from deputize.shared.text import clip
from deputize.worker.celery_pool.process import ProgressEvents
from deputize.worker.core.outcome import MAX_SUMMARY_CHARS
from deputize.worker.task import carry_out
from tests.runs.bench import call, open_bench, say, script

SECRETS = {
    "the model's key": "sk-ant-api03-of-the-model-0123456789",
    "the model's token": "oauth-of-the-model-abcdefgh",
    "one header": "value-of-the-first-header",
    "another header": 'quoted "value" of a header',
    "the password in the url": "pw-in-the-base-url",
    "the service token": "token-of-the-service-xyz",
    "the search key": "brave-key-of-the-search",
}
SETTINGS = {
    "token": SECRETS["the service token"],
    "tools": {"search_provider": "brave", "search_key": SECRETS["the search key"]},
    "model_endpoint": {
        "ANTHROPIC_API_KEY": SECRETS["the model's key"],
        "ANTHROPIC_AUTH_TOKEN": SECRETS["the model's token"],
        "ANTHROPIC_BASE_URL": f"https://user:{SECRETS['the password in the url']}@models.test/v1",
        "ANTHROPIC_CUSTOM_HEADERS": f"X-One: Bearer {SECRETS['one header']}\nX-Two: {SECRETS['another header']}",
    },
}


OF_OTHERS = {
    "a model's key": "sk-ant-api03-Zk9hWq2LpXv7RtY4uMbN8cDsEfGhJkLmNpQrStUvWxYz",
    "a key of AWS": "AKIAQ7X3M2N5P8R4T6V9",
    "a token of GitHub": "ghp_Zk9hWq2LpXv7RtY4uMbN8cDsEfGhJkLmNpQr",
    "a token of Slack": "xoxb-2345678901-3456789012-Zk9hWq2LpXv7RtY4uMbN8cDs",
    "the claims of a JWT": "eyJzdWIiOiJzb21lb25lIn0.Zk9hWq2LpXv7RtY4uMbN8cDs",
    "a line of a private key": "MIIEpAIBAAKCAQEAZk9hWq2LpXv7RtY4uMbN8cDsEfGhJkLmNpQrStUvWxYz1234",
    "a password in a URL": "hunter2-of-the-database",
    "a bearer token": "Zk9hWq2LpXv7RtY4uMbN8cDs",
}
GIVEN = """{a model's key} {a key of AWS} {a token of GitHub} {a token of Slack}
token: eyJhbGciOiJIUzI1NiJ9.{the claims of a JWT}
-----BEGIN RSA PRIVATE KEY-----
{a line of a private key}
{a line of a private key}
-----END RSA PRIVATE KEY-----
postgres://app:{a password in a URL}@db/x
curl -H "Authorization: Bearer {a bearer token}"
"""


_ROOM = clip("x" * 17_000, MAX_SUMMARY_CHARS).index("…")
"""Characters of a summary before the note that it was cut."""


@pytest.mark.requirement("P-17")
@pytest.mark.parametrize(
    ("secrets", "everything"),
    [(SECRETS, "\n".join(SECRETS.values())), (OF_OTHERS, GIVEN.format_map(OF_OTHERS))],
    ids=["its own", "of others"],
)
async def test_no_secret_is_in_anything_that_a_run_publishes_or_keeps_for_others(
    redis_url: str, tmp_path: Path, secrets: dict[str, str], everything: str
) -> None:
    named = next(iter(secrets.values()))
    model = script(
        tmp_path,
        [say(f"I know {everything}"), call("write_file", path="keys.txt", content=everything)],
        [call("write_file", path=f"{named}.txt", content="x")],
        [call("create_artifact", name="keys", content=everything)],
        [call("bash", command=f"echo '{everything}'; exit 3")],
        [call("bash", command=f"echo {'x' * 40} {named}")],
        [call(named, argument=everything)],
        [say(f"Done with {everything}.".ljust(_ROOM - 5, "x") + f"{named} {'x' * 2000}")],
    )
    async with open_bench(redis_url, tmp_path / "home", **SETTINGS) as bench:
        request = DelegationRequest(task="do it", model=model, tools=["write_file", "create_artifact", "bash"])
        id = await bench.accept(request)
        async with bench.bus.listen(channel(id)) as inbox:
            await carry_out(bench.services, id)
            frames = [await inbox.get() for _ in range(inbox.qsize())]
        record = await bench.store.redis.hgetall(record_key(id))
        artifacts = await bench.store.redis.hgetall(artifacts_key(id))
        events = [event.to_json() for event in await bench.events(id)]
    public = {"patch": record["patch"], "result": record["result"], "progress": record["progress"]}
    public |= {f"event {at}": event for at, event in enumerate(events)} | {"frames": " ".join(map(str, frames))}
    public |= {f"artifact {name}": text for name, text in artifacts.items()}
    escaped = {what: json.dumps(secret)[1:-1] for what, secret in secrets.items()}
    leaks = [
        f"{what} in {place}"
        for place, text in public.items()
        for what, secret in secrets.items()
        if secret in text or escaped[what] in text
    ]
    assert leaks == []
    assert f"x{named[:5]}…" not in public["result"]
    assert "***" in public["patch"]
    assert "***.txt" in public["result"]
    assert "text_delta" in public["frames"]
    assert "***" in " ".join(artifacts.values())


async def test_the_address_of_the_model_is_no_secret() -> None:
    secrets = Settings.load(environ={}, **SETTINGS).secrets
    assert "pw-in-the-base-url" in secrets
    assert [secret for secret in secrets if "models.test" in secret] == []


def test_the_password_of_redis_is_a_secret_and_its_address_is_not() -> None:
    settings = Settings(redis_url="redis://:p%40ss-word@host:6379/0")
    assert {"p%40ss-word", "p@ss-word"} <= {*settings.secrets}
    assert [secret for secret in settings.secrets if "host" in secret] == []


async def test_no_secret_is_in_what_flower_shows(redis_url: str, tmp_path: Path) -> None:
    class Heard(ProgressEvents):
        def update(self, id: str, text: str) -> None:
            titles.append(text)

    titles: list[str] = []
    secret = SECRETS["the model's key"]
    async with open_bench(redis_url, tmp_path / "home", **SETTINGS) as bench:
        with Celery() as app:
            bench.services.progress = Heard(app, "worker-1")
        commands = [call("bash", command=f"echo {'x' * width} {secret}") for width in (1, 40, 60, 80)]
        await bench.run(model=script(tmp_path, commands, [say("done")]))
    assert [title.startswith("turn 1  … $ echo x") for title in titles] == [True] * 4
    assert [title for title in titles if secret[:8] in title] == []


def test_no_secret_is_in_a_log_line(capfd: pytest.CaptureFixture[str]) -> None:
    settings = Settings.load(environ={}, **SETTINGS)
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        log.set_up("INFO", settings.secrets)
        log.hide(["hidden-for-one-run"])
        try:
            raise ValueError(SECRETS["another header"])
        except ValueError:
            log.log.exception("it quoted %s", SECRETS["the model's key"], extra={"said": "hidden-for-one-run"})
    finally:
        logging.basicConfig(level=level, handlers=handlers, force=True)
    line = json.loads(capfd.readouterr().err)
    assert (line["message"], line["said"]) == ("it quoted ***", "***")
    assert SECRETS["another header"] not in line["traceback"]
