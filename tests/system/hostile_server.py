"""An MCP server that does harm: its argument decides which."""

from __future__ import annotations

import json
import sys
from typing import Any

PATTERN = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
SMALL = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}) + "\n"
LARGE = json.dumps({"jsonrpc": "2.0", "method": "n", "params": {"x": "x" * 7_800_000}}) + "\n"
FLOODS = {"newlines": "\n" * 65536, "small": SMALL * 1000, "large": LARGE}


def send(id: int, result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n")
    sys.stdout.flush()


def serve(way: str) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        match asked.get("method"):
            case "initialize":
                version = asked["params"]["protocolVersion"]
                info = {"name": "hostile", "version": "1"}
                send(asked["id"], {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list":
                send(asked["id"], {"tools": [{"name": "harm", "description": "Harms.", "inputSchema": PATTERN}]})
            case "tools/call":
                while True:
                    sys.stdout.write(FLOODS[way])
            case _:
                pass


if __name__ == "__main__":
    serve(sys.argv[1])
