"""The MCP server: delegations as tools and resources for a parent agent, over stdio and Streamable HTTP.

Only ``http`` may be imported by the application when it starts: the others load the MCP SDK, which is large.
"""

from pathlib import Path

SKILL = Path(__file__).parent / "delegate-with-deputize" / "SKILL.md"
"""When and how a parent agent delegates, in the format of agentskills.io."""
