"""Platforms whose requests the provider's SDK signs: AWS, Amazon Bedrock, Google Cloud and Microsoft Foundry.

The SDK builds and signs a request with the methods by which its own sending does (three of them are private: its
version is bounded, and a test per platform compares what is sent); ``endpoint.py`` sends it as it sends all others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import httpx2

from ...shared.errors import Misconfigured, extra_remedy
from ...shared.fleet import own_version
from ..web.dial import trust_store
from .credentials import KEY, URL, Credentials
from .retry import Failure


@dataclass(frozen=True, slots=True)
class Platform:
    """Where the SDK has a platform's client, and with what that signs where no key is set."""

    client: str
    extra: str = ""
    """What is to be installed of this project, if anything."""
    library: str = ""
    errors: str = ""
    """The class of the library's errors."""
    passing: str = ""
    """Those of them that may pass: something on the network did not answer."""
    origin: str = ""
    """The address, where it is complete only with the first request."""


_OF_AWS = ("boto3", "botocore.exceptions:BotoCoreError", "botocore.exceptions:HTTPClientError")
_OF_GOOGLE = ("google.auth", "google.auth.exceptions:GoogleAuthError", "google.auth.exceptions:TransportError")
PLATFORMS: Mapping[str, Platform] = {
    "aws": Platform("anthropic:AsyncAnthropicAWS", "aws", *_OF_AWS),
    "bedrock": Platform("anthropic.lib.bedrock:AsyncAnthropicBedrockMantle", "bedrock", *_OF_AWS),
    "google-cloud": Platform(
        "anthropic:AsyncAnthropicGoogleCloud", "google-cloud", *_OF_GOOGLE, "https://claude.googleapis.com"
    ),
    "foundry": Platform("anthropic:AsyncAnthropicFoundry"),
}
_REGION = re.compile(r"\.([a-z]+(?:-[a-z]+)+-\d+)\.api\.aws(?:[:/]|\Z)")
"""The region in an address of AWS: a signature for another one is refused, whatever ``AWS_REGION`` is."""
SIGNS_WITH = "2.12 or 2.13"
"""The versions of the SDK with which the tests of platforms pass."""
_PRIVATE = ("_prepare_options", "_build_request", "_prepare_request")
"""The SDK's methods that sign a request."""


def prepare(credentials: Credentials) -> None:
    """Imports what signing needs, which takes seconds. Raises Misconfigured for what is not installed."""
    anthropic = import_module("anthropic")
    if (platform := PLATFORMS.get(credentials.platform)) is None:
        return
    client = _loaded(platform.client)
    if missing := [name for name in _PRIVATE if not hasattr(client, name)]:
        raise Misconfigured(
            f"anthropic {anthropic.__version__} signs requests in another way than this version of deputize knows "
            f"({missing[0]} is gone); install anthropic {SIGNS_WITH}"
        )
    if platform.library and credentials.token is None:
        try:
            import_module(platform.library)
        except ImportError:
            raise Misconfigured(
                f"platform {credentials.platform} signs requests with {platform.library}, which is not installed: "
                f"{extra_remedy(platform.extra)}"
            ) from None
        logging.getLogger("botocore").setLevel(logging.INFO)  # below it logs session tokens, which no setting has


class Signer:
    """The SDK's client of one platform. Raises ValueError where it lacks an address, a region or credentials."""

    def __init__(self, credentials: Credentials) -> None:
        from anthropic import AnthropicError

        self._platform = PLATFORMS[credentials.platform]
        self._has_key = credentials.token is not None
        given = {"api_key": credentials.get(KEY), "base_url": credentials.get(URL)}
        if region := _REGION.search(credentials.get(URL) or ""):
            given["aws_region"] = region[1]
        try:
            # It only builds requests: its connections and proxies are not used.
            self._client: Any = _loaded(self._platform.client)(
                http_client=httpx2.AsyncClient(trust_env=False, verify=trust_store()),
                **{name: value for name, value in given.items() if value is not None},
            )
        except AnthropicError as error:
            raise ValueError(str(error)) from None
        # Those of ANTHROPIC_CUSTOM_HEADERS are for another endpoint, and may contain its credentials.
        self._client._custom_headers = {}
        self.base = httpx2.URL(str(self._client.base_url).strip("/") or self._platform.origin)
        """The address, for proxies and errors."""

    async def signed(self, path: str, body: bytes) -> tuple[str, dict[str, str]]:
        """Returns the URL and the headers of a request with this body. Raises Failure where it cannot be signed."""
        from anthropic import AnthropicError
        from anthropic._models import FinalRequestOptions

        headers = {"user-agent": f"deputize/{own_version()}", "accept-encoding": "identity"}
        options = FinalRequestOptions(method="post", url=f"/{path}", content=body, headers=headers)
        try:
            request = self._client._build_request(await self._client._prepare_options(options))
            await self._client._prepare_request(request)
        except (AnthropicError, RuntimeError, ValueError, OSError, *self._errors) as error:
            raise self._failure(error) from None
        return str(request.url), {name: value for name, value in request.headers.items() if name != "connection"}

    @property
    def _errors(self) -> list[type[Exception]]:
        return [] if self._has_key or not self._platform.errors else [_loaded(self._platform.errors)]

    def _failure(self, error: Exception) -> Failure:
        passing = [OSError, *([_loaded(self._platform.passing)] if self._errors else [])]
        passes = isinstance(error, tuple(passing)) or getattr(error, "retryable", False)
        reason = str(error) or type(error).__name__
        return Failure(f"the request to {self.base} cannot be signed: {reason}", retryable=passes)

    async def aclose(self) -> None:
        await self._client.close()


def _loaded(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
