"""The syntax tree of Python source, for any thread.

Python 3.11 counts the depth of a tree while it builds one in a variable that all threads share. The garbage collector
may let another thread run meanwhile, and then either thread ends with a SystemError.
"""

from __future__ import annotations

import ast
from threading import RLock

_BUILT = RLock()


def parse(source: str) -> ast.Module:
    """Returns the tree of a module's source.

    Raises SyntaxError, ValueError for a surrogate, and RecursionError or MemoryError for a source nested too deeply.
    """
    with _BUILT:
        return ast.parse(source)  # noqa: TID251
