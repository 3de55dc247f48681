"""Copies of trees: making them, the manifest before and after, and the patch between."""
