"""Tools of MCP servers: configuration, transports and connections, and the tools themselves.

The SDK is imported only when a run uses a server: loading it takes most of a second.
"""
