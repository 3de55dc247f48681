"""Patches in git's format, and how the changes of a run reach a directory of its caller."""
