"""What a service of AWS does with a signed request: the signature is computed anew, of what has arrived."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from hashlib import sha256
from urllib.parse import quote

from tests.fake_model.server import Asked

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<id>\w+)/(?P<scope>(?P<day>\d{8})/(?P<region>[\w-]+)/(?P<service>[\w-]+)/"
    r"aws4_request), SignedHeaders=(?P<names>[\w;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)


def verifier(id: str, secret: str, region: str, service: str) -> Callable[[Asked], str | None]:
    """Gives what says why a request is refused: its signature is not that of this account, region and service."""

    def refusal(asked: Asked) -> str | None:
        found = _AUTHORIZATION.fullmatch(asked.headers.get("authorization", ""))
        if found is None:
            return "there is no signature"
        if (found["id"], found["region"], found["service"]) != (id, region, service):
            return f"it is signed for {found['scope']}"
        names = found["names"].split(";")
        if missing := [name for name in ("host", "x-amz-date") if name not in names]:
            return f"not signed: {missing}"
        headers = [f"{name}:{' '.join(asked.headers.get(name, '').split())}" for name in names]
        path = quote(asked.path, safe="/~")  # what is escaped already, too
        canonical = ["POST", path, "", *headers, "", found["names"], sha256(asked.raw).hexdigest()]
        digest = sha256("\n".join(canonical).encode()).hexdigest()
        key = f"AWS4{secret}".encode()
        for part in (found["day"], region, service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = "\n".join(["AWS4-HMAC-SHA256", asked.headers["x-amz-date"], found["scope"], digest])
        wanted = hmac.digest(key, text.encode(), "sha256").hex()
        return None if wanted == found["signature"] else "the signature is another one"

    return refusal
