"""Searching a workspace with ripgrep: files by patterns of their paths, and lines that match."""
