"""Adapters for tools of other styles: their results and the conventions of their calls become those of ours.

A worker with such a tool: ``main(tools=(*BUILTIN, adapt(tool)))``.
"""

from .adapter import adapt, adapt_table
from .declarations import TableEntry

__all__ = ["TableEntry", "adapt", "adapt_table"]
