"""Tools of MCP servers: which servers (config), how they are reached (links, transports), what their tools are.

Nothing here imports the SDK before a run wants a server: loading it takes most of a second.
"""
