"""A small MCP server in nothing but the standard library: ``greet`` only reads, ``sign`` writes a file."""

import json
import os
import sys
from pathlib import Path

TEXT = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOLS = [
    {"name": "greet", "description": "Greets.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
    {"name": "sign", "description": "Signs the guest book.", "inputSchema": TEXT},
]


def call(tool: str, name: str) -> str:
    if tool == "sign":
        Path("guests.txt").write_text(f"{name}\n")
        return f"{name} has signed"
    return f"{os.environ.get('GREETING_TOKEN', 'Hello')}, {name}!"


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        about = {"name": "greeting", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": call(params["name"], params["arguments"]["name"])}]}
    return {"tools": TOOLS}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
