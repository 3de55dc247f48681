"""A whole new content for a file, in the form the old one had: line ends, encoding, byte order mark."""

from __future__ import annotations

from worker.text.diff import compared
from worker.text.textfile import TextFile, remarks_of


def kept_form(file: TextFile, content: str) -> tuple[str, list[str]]:
    """The content with the line ends of the file that it replaces, and what was kept of the file's form.

    What comes with CRLF itself is left as it comes.
    """
    text = content.removeprefix("\ufeff") if file.mark else content
    crlf, breaks = file.text.count("\r\n"), file.text.count("\n")
    if not crlf or "\r\n" in text or "\n" not in text:
        return text, remarks_of(file.mark, 0, 0, invalid=False)
    ended = text.replace("\n", "\r\n") if crlf == breaks else _line_by_line(file, text)
    return ended, remarks_of(file.mark, breaks, crlf, invalid=False)


def _line_by_line(file: TextFile, text: str) -> str:
    """Lines that stay keep their ends; others get the one that most lines have."""
    old, new = file.text.split("\n"), text.split("\n")
    ends = [file.newline] * len(new)
    for step in compared([line.removesuffix("\r") for line in old], new):
        if step.same:
            for at, number in zip(step.old, step.new, strict=True):
                if at < len(old) - 1:
                    ends[number] = "\r\n" if old[at].endswith("\r") else "\n"
    ends[-1] = ""
    return "".join(line + end for line, end in zip(new, ends, strict=True))
