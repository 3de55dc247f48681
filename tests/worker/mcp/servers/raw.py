"""An MCP server in nothing but Python's standard library: quick to start, and able to behave in ways no SDK allows.

Its arguments say how it begins: ``greet``, ``deaf``, ``die``, ``nonsense``, ``mute``, and what it has: ``unusable``,
``many``, ``blunt``.
It writes what it did into the directory where it runs, the workspace.
"""

import json
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

QUIRKS = set(sys.argv[1:])
ANY = {"type": "object", "properties": {}, "additionalProperties": True}


def tool(name, *, read_only=False, idempotent=False, schema=None, **more):
    hints = {"readOnlyHint": read_only, "idempotentHint": idempotent}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema or ANY, "annotations": hints, **more}


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    tool("echo", read_only=True, schema={"type": "object", "properties": {"text": {"type": "string"}}}),
    tool("environ", read_only=True),
    tool("die"),
    tool("die once", idempotent=True),
    tool("refuse"),
    tool("break the protocol"),
    tool("babble"),
    tool("promise a number", outputSchema=NUMBER),
    tool("say much"),
    tool("say too much"),
    tool("say nothing"),
    tool("wait"),
    tool("tick"),
    tool("leave a child"),
]
if "unusable" in QUIRKS:
    TOOLS += [tool("unusable", schema={"type": "object", "properties": {"a": {"type": "no such type"}}})]
if "blunt" in QUIRKS:
    TOOLS += [
        tool("say"),
        {"name": "no schema"},
        {"inputSchema": ANY},
        "no tool at all",
        tool("odd output", outputSchema={"type": "array"}),
        {"name": "empty schema", "inputSchema": {}},
    ]
if "many" in QUIRKS:
    TOOLS = [tool(f"tool {number}") for number in range(200)] + [tool("tool.7"), tool("x" * 80)]


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def note(name):
    with suppress(OSError), Path("notes").open("a") as notes:  # its workspace may be read-only
        notes.write(name + "\n")


def call(token, name, arguments):
    note(name)
    if name == "echo":
        return text(arguments.get("text", ""))
    if name == "environ":
        return text(json.dumps({**os.environ}), structuredContent={"cwd": str(Path.cwd()), "argv": sys.argv[1:]})
    if name == "die" or (name == "die once" and not Path("died").exists()):
        Path("died").touch()
        os._exit(7)
    if name == "die once":
        return text("alive again")
    if name == "break the protocol":
        return {"content": "no list at all"}
    if name == "babble":
        print("Loading the model ...\n{not json\n\n[1, 2]", flush=True)
        return text("done babbling")
    if name == "promise a number":
        return text("", structuredContent={"n": "no number"})
    if name == "say much":
        return text("much\n" * 40_000)
    if name == "say too much":
        return text("x" * 9_000_000)
    if name == "tick":
        for number in range(arguments["times"]):
            select.select([], [], [], 0.08)
            send(method="notifications/progress", params={"progressToken": token, "progress": number})
        return text("ticked")
    if name == "leave a child":
        os.system("(sleep 1000 & setsid sleep 2000 & setsid sh -c 'trap \"\" TERM; sleep 3000; :' &) >/dev/null 2>&1")
        return text("left")
    return None


def serve():
    if "greet" in QUIRKS:
        print("Welcome to the raw server!", flush=True)
        print("It listens.", file=sys.stderr, flush=True)
    if "die" in QUIRKS:
        sys.exit("raw: no licence found")
    if "deaf" in QUIRKS:
        print("raw: warming up", file=sys.stderr, flush=True)
        signal.pause()
    if "nonsense" in QUIRKS:
        sys.stdout.write("{nonsense}\n" * 5000)
        sys.stdout.flush()
    waiting = None
    for line in sys.stdin:
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params", {})
        if method == "initialize":
            about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            send(id=id, result={**about, "serverInfo": {"name": "raw", "version": "1"}})
        elif method == "tools/list" and "mute" in QUIRKS:
            note("asked for its tools")
        elif method == "tools/list":
            start = int(params.get("cursor") or 0)
            more = {"nextCursor": str(start + 50)} if start + 50 < len(TOOLS) else {}
            send(id=id, result={"tools": TOOLS[start : start + 50], **more})
        elif method == "tools/call" and params["name"] == "refuse":
            send(id=id, error={"code": -32000, "message": "the moon is in the wrong phase"})
        elif method == "tools/call" and params["name"] == "say":
            before, repeated, times, after = params["arguments"]["parts"]
            said = (before + repeated * times + after).replace("$ID", str(id)) + "\n"
            sys.stdout.buffer.write(said.encode("latin-1"))
            sys.stdout.flush()
        elif method == "tools/call" and params["name"] == "wait":
            waiting = id
            token = params.get("_meta", {}).get("progressToken")
            progress = {"progressToken": token, "progress": 1, "total": 3, "message": "a third"}
            send(method="notifications/progress", params=progress)
        elif method == "tools/call":
            result = call(params.get("_meta", {}).get("progressToken"), params["name"], params.get("arguments", {}))
            if result is not None:
                send(id=id, result=result)
        elif method == "notifications/cancelled" and params.get("requestId") == waiting:
            note("cancelled")
        elif id is not None:
            send(id=id, error={"code": -32601, "message": f"no method {method}"})
    note("ended by itself")


if __name__ == "__main__":
    serve()
