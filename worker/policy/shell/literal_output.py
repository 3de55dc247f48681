"""The texts that commands print for certain: they may be executed by another command of the line."""

from __future__ import annotations

from deputize.worker.policy.shell.parser import Node
from deputize.worker.policy.shell.words import literal_text


def printed(node: Node) -> str | None:
    """Returns what ``echo`` or ``printf`` prints, or None where another command stands or that is not known."""
    if node.get("Type") != "CallExpr" or len(node.get("Args", [])) < 2:
        return None
    words = [literal_text(each) for each in node["Args"]]
    texts = [word for word in words if word is not None]
    if len(texts) != len(words) or texts[0] not in ("echo", "printf"):
        return None
    while len(texts) > 1 and texts[1] in ("-n", "-e", "-E", "-ne", "-en", "--"):
        del texts[1]
    text = " ".join(texts[1:])
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("%s", "").strip()
