"""README.md at the top, its blocks, and the list of features that it refers to."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

TEXT = (ROOT / "README.md").read_text("utf-8")
FEATURES = (ROOT / ".github/FEATURES.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
INSTALLING, UP, COMMANDS, HTTP = (text for language, text in BLOCKS if language == "sh")
PYTHON, FAN_OUT = (text for language, text in BLOCKS if language == "python")
PORT = "8642"
"""The service's own port, for which a test takes a free one."""
