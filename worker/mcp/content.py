"""What a server answers, as the answer to a tool call: text for the model, files for what is no text."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import re
from dataclasses import dataclass, field

import mcp_types as types

from shared.errors import ErrorType, ToolError
from worker.output import MAX_ERROR_CHARS, PRIVATE_DIR, clip
from worker.threads import to_the_end
from worker.tools.base import ToolContext, ToolResult
from worker.workspace.files import Files

FOLDER = f"{PRIVATE_DIR}/mcp"
MAX_FILES = 50
"""Of one answer."""


async def result_of(answer: types.CallToolResult, ctx: ToolContext, title: str) -> ToolResult:
    """The answer as a result. What the server calls an error is one, with the server's words."""
    text = await to_the_end(_Writing(ctx.files, ctx.call_id).of, answer)
    if not answer.is_error:
        return ToolResult(text, title, data=answer.structured_content)
    error, content = text or "the server says that it failed, and not why", ""
    if len(text) > MAX_ERROR_CHARS:
        error, content = clip(text, MAX_ERROR_CHARS // 4), text
    return ToolResult(
        content, title, data=answer.structured_content, error=error, error_type=ErrorType.EXECUTION_FAILED
    )


@dataclass(slots=True)
class _Writing:
    """One answer being written down."""

    files: Files
    call_id: str
    saved: list[str] = field(default_factory=list[str])

    def of(self, answer: types.CallToolResult) -> str:
        text = "\n".join(part for part in map(self._block, answer.content) if part)
        if not text and answer.structured_content is not None:
            return json.dumps(answer.structured_content, ensure_ascii=False)
        return text

    def _block(self, block: types.ContentBlock) -> str:
        match block:
            case types.TextContent():
                return block.text
            case types.ImageContent() | types.AudioContent():
                return self._file(block.type, block.data, block.mime_type)
            case types.ResourceLink():
                about = ", ".join(str(each) for each in (block.mime_type, block.description) if each)
                return f"[resource {block.name}: {block.uri}{f' ({about})' if about else ''}]"
            case types.EmbeddedResource():
                inner = block.resource
                if isinstance(inner, types.TextResourceContents):
                    return f"[resource {inner.uri}]\n{inner.text}"
                return self._file(f"resource {inner.uri}", inner.blob, inner.mime_type or "")

    def _file(self, what: str, encoded: str, mime_type: str) -> str:
        """Saves what cannot be read as text, and says where; nothing of it stands in the conversation."""
        named = f"{what} {mime_type}".strip()
        if len(self.saved) >= MAX_FILES:
            return f"[{named}: left out, the answer has more than {MAX_FILES} files]"
        try:
            data = base64.b64decode("".join(encoded.split()), validate=True)
        except (binascii.Error, ValueError):
            return f"[{named}: left out, it is no base64]"
        call = re.sub(r"[^A-Za-z0-9_-]", "_", self.call_id)[:80] or "call"
        path = f"{FOLDER}/{call}-{len(self.saved) + 1}{mimetypes.guess_extension(mime_type) or '.bin'}"
        try:
            self.files.write(f"{PRIVATE_DIR}/.gitignore", b"*\n")
            self.files.write(path, data)
        except ToolError as error:
            return f"[{named}, {len(data)} bytes: not saved, {error.message}]"
        self.saved.append(path)
        return f"[{named}, {len(data)} bytes, saved as {path}]"
