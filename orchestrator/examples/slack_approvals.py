"""Buttons in Slack for calls that wait for a person.

    pip install standardwebhooks httpx2 starlette uvicorn
    uvicorn --factory slack_approvals:app --port 8090

deputize sends `permission.requested` to /deputize: set DEPUTIZE_WEBHOOK_URL=https://HOST/deputize for it. Slack sends
clicks to /slack, which is the "Request URL" of the app's interactivity. The app needs the scope `chat:write`.

DEPUTIZE_URL, DEPUTIZE_TOKEN    the service, and a token with the scopes `read`, `approve` and, for all owners, `all`
DEPUTIZE_WEBHOOK_SECRETS, SLACK_BOT_TOKEN, SLACK_SIGNING_SECRET, SLACK_CHANNEL
SLACK_APPROVERS                 ids of the users who may answer, such as U012AB3CD,U045EF6GH
"""

import hmac
import json
import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import httpx2
from standardwebhooks import Webhook, WebhookVerificationError
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

SECONDS = 300  # Slack asks to refuse older clicks
OUTCOMES = {"approve": "proceed_once", "deny": "cancel"}
SEEN = 10_000


def plain(text: str) -> dict[str, str]:
    """Returns a text of Slack in which nothing becomes a mention or a link."""
    return {"type": "plain_text", "text": text}


class Approvals:
    """Shows what waits in a channel, and hands on the answers of those who may give them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._verifier = Webhook(environ["DEPUTIZE_WEBHOOK_SECRETS"])
        self._signing = environ["SLACK_SIGNING_SECRET"].encode()
        self._channel = environ["SLACK_CHANNEL"]
        self._approvers = set(environ["SLACK_APPROVERS"].split(","))
        self._slack = environ.get("SLACK_API_URL", "https://slack.com/api")
        self._service = environ["DEPUTIZE_URL"].rstrip("/")
        self._of_service = {"Authorization": f"Bearer {environ['DEPUTIZE_TOKEN']}"}
        self._of_slack = {"Authorization": f"Bearer {environ['SLACK_BOT_TOKEN']}"}
        self._seen: OrderedDict[str, None] = OrderedDict()

    async def notified(self, request: Request) -> Response:
        """Takes a notification of deputize. One that comes twice makes one message."""
        try:
            body = self._verifier.verify(await request.body(), dict(request.headers))
        except (WebhookVerificationError, ValueError) as error:
            return Response(f"not a notification: {error}", 401)
        id = request.headers["webhook-id"]
        if body["type"] == "permission.requested" and id not in self._seen:
            await self._ask(body["data"])  # an error is a 500, and the notification comes again
            self._seen[id] = None
            if len(self._seen) > SEEN:
                self._seen.popitem(last=False)
        return Response(status_code=204)

    async def clicked(self, request: Request) -> Response:
        """Takes a click. Slack shows an error unless it has an answer within three seconds."""
        raw, stamp = await request.body(), request.headers.get("x-slack-request-timestamp", "")
        signed = hmac.new(self._signing, b"v0:" + stamp.encode() + b":" + raw, "sha256").hexdigest()
        given = request.headers.get("x-slack-signature", "")
        if not hmac.compare_digest(f"v0={signed}".encode(), given.encode()):
            return Response("the signature is wrong", 401)
        if not abs(time.time() - int(stamp)) < SECONDS:
            return Response("the click is too old", 401)
        payload = json.loads(parse_qs(raw.decode())["payload"][0])
        return Response(background=BackgroundTask(self._answer, payload))

    async def _ask(self, data: dict[str, Any]) -> None:
        url, params = f"{self._service}/v1/permissions", {"delegation": data["id"]}
        async with httpx2.AsyncClient(timeout=10, headers=self._of_service) as client:
            listed = (await client.get(url, params=params)).raise_for_status()
        found = [each for each in listed.json()["items"] if each["permissionId"] == data["permissionId"]]
        if not found:
            return  # it was answered meanwhile
        call = json.dumps(found[0]["step"]["arguments"], indent=1)[:2000]
        text = f"{data['tool']} waits for permission: {found[0]['reason']}\n{call}"
        buttons = [
            {"type": "button", "action_id": name, "value": data["permissionId"], "text": plain(name.title())}
            for name in OUTCOMES
        ]
        blocks = [{"type": "section", "text": plain(text)}, {"type": "actions", "elements": buttons}]
        message = {"channel": self._channel, "text": f"{data['id']}: a call waits for permission", "blocks": blocks}
        async with httpx2.AsyncClient(timeout=10, headers=self._of_slack) as client:
            posted = await client.post(f"{self._slack}/chat.postMessage", json=message)
        if not posted.json().get("ok"):
            raise RuntimeError(f"Slack: {posted.json().get('error')}")

    async def _answer(self, payload: dict[str, Any]) -> None:
        button, user = payload["actions"][0], payload["user"]["id"]
        if user not in self._approvers:
            reply = {"response_type": "ephemeral", "replace_original": False, "text": "You may not answer this."}
        else:
            body = {"outcome": OUTCOMES[button["action_id"]], "reason": f"{button['action_id']} by {user} in Slack"}
            url = f"{self._service}/v1/permissions/{button['value']}"
            async with httpx2.AsyncClient(timeout=10) as client:
                answered = await client.post(url, json=body, headers=self._of_service)
            why = "" if answered.is_success else f", but: {answered.json().get('detail', answered.status_code)}"
            reply = {"replace_original": True, "text": f"`{button['action_id']}` by <@{user}>{why}"}
        async with httpx2.AsyncClient(timeout=10) as client:
            await client.post(payload["response_url"], json=reply)


def app(environ: Mapping[str, str] = os.environ) -> Starlette:
    """Returns the application, as the environment sets it up."""
    own = Approvals(environ)
    routes = [Route("/deputize", own.notified, methods=["POST"]), Route("/slack", own.clicked, methods=["POST"])]
    return Starlette(routes=routes)
