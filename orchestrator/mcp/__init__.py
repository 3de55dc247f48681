"""The MCP server: delegations as tools and resources for a parent agent, over stdio and Streamable HTTP.

Only ``http`` may be imported by the application when it starts: the others load the MCP SDK, which is large.
"""
