"""Command lines: cut into plain commands, which a table of programs judges."""
