"""Placeholders: which lines stand for others, and which only look so."""

from __future__ import annotations

import time

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.text.edit import find_placeholder, refuse_placeholder


@pytest.mark.parametrize(
    "line",
    [
        "// ... rest of code",
        "# ... existing code ...",
        "(unchanged)",
        "    // ...existing code...",
        "\t// …rest of the function…",
        "<!-- ... existing markup ... -->",
        "{/* ... existing code ... */}",
        "/* ... rest of the file unchanged ... */",
        " * ... remaining fields ...",
        "-- ... existing columns unchanged",
        "# ... (rest of the code unchanged)",
        "# (unchanged)",
        "# rest of the function remains unchanged",
        "# Rest of the code...",
        "// rest of your code here",
        "# The rest of the file stays the same",
        "// existing implementation here",
        "// code omitted for brevity",
        "// ... keep existing code",
        "# ... other methods ...",
        "# Other methods remain unchanged",
        "// ... same as before ...",
        "... rest of code ...",
        "[... rest of file ...]",
        "(rest of the methods)",
        "function f() { /* ... existing code ... */ }",
        "def f():  # ... existing implementation",
    ],
)
def test_a_line_that_stands_for_others_is_seen(line: str) -> None:
    text = f"before()\n{line}\nafter()\n"
    assert find_placeholder(text) == line.strip()
    assert find_placeholder(text, f"what is there\n    {line.strip()}\n") is None
    with pytest.raises(ToolError) as caught:
        refuse_placeholder("new_string", text)
    assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS
    assert caught.value.message.startswith(f"new_string has a placeholder: {line.strip()!r}. ")


@pytest.mark.parametrize(
    "line",
    [
        "...",
        "    ...",
        "def f(x: int) -> str: ...",
        "class Proto(Protocol): ...",
        "x[..., 0] = tuple[int, ...]",
        "const {a, ...rest} = props;",
        "return [...existing, item]",
        "  ...existing,",
        "    ...args,",
        "for i in 0...10",
        "# ...",
        "// ...",
        "# Existing fields",
        "# Other methods",
        "# Previous implementation",
        "# unchanged",
        "# Loading tests...",
        "# The rest of the file is parsed lazily.",
        "# read the rest of the file",
        "// TODO: handle the rest of the cases",
        "// existing users keep their settings",
        "# the remaining lines are the body",
        "# same as above",
        "if x:  # same code path",
        "the rest of the file",
        "- (unchanged behaviour)",
        'print("# ... existing code ...")',
        "assert unchanged",
        "x" * 1000 + " # ... existing code",
    ],
)
def test_a_line_that_means_what_it_shows_is_none(line: str) -> None:
    assert find_placeholder(f"before()\n{line}\nafter()\n") is None


@pytest.mark.parametrize(
    "line", ["# " + "the " * 49, "... " * 50, " " * 199 + "x", "# existing " + "x " * 90, "(#" * 100, "{/" + "*" * 190]
)
def test_hostile_lines_take_no_hostile_time(line: str) -> None:
    begun = time.process_time()
    assert find_placeholder(f"{line}\n" * 1000) is None
    assert time.process_time() - begun < 5
