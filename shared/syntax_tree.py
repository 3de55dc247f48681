"""The syntax tree of Python source, for any thread.

Python 3.11 counts the depth of a tree while it builds one in a variable that all threads share. The garbage collector
may let another thread run meanwhile, and then either thread ends with a SystemError.
"""

from __future__ import annotations

import ast
from threading import RLock

PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What ``parse`` raises: ValueError for a surrogate, the last two for a source that is nested too deeply.

A walk of a tree, or what writes it as a text, raises RecursionError where ``parse`` does not yet.
"""
_BUILT = RLock()


def parse(source: str) -> ast.Module:
    """Returns the tree of a module's source. Raises one of ``PARSE_ERRORS``."""
    with _BUILT:
        return ast.parse(source)  # noqa: TID251
