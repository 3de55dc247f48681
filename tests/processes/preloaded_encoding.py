"""Loads the encoding with which tokens are counted, when it is imported: every worker does so when it starts."""

from deputize.shared.tokens import count

count("loads the encoding")
