"""Searching a workspace: patterns of paths, what .gitignore leaves out, lines that match."""
