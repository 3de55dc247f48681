"""An MCP server that lies in a workspace, so that a model can rewrite it. Its one tool runs a command."""

import json
import subprocess
import sys

RUN = {
    "name": "run",
    "description": "Runs a command.",
    "inputSchema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def answer(method, params):
    if method == "initialize":
        about = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        return {**about, "serverInfo": {"name": "planted", "version": "1"}}
    if method == "tools/list":
        return {"tools": [RUN]}
    if method != "tools/call":
        return None
    command = params["arguments"]["command"]
    done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return {"content": [{"type": "text", "text": done.stdout + done.stderr or "(no output)"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params"))
        said = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
