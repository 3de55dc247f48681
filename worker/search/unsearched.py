"""What a search could not look at: where there is any, that nothing was found proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

from shared.errors import ErrorType, ToolError
from worker.output import clip, one_line

_SHOWN = 5
_GONE = (ErrorType.FILE_NOT_FOUND, ErrorType.NOT_A_DIRECTORY)


class Unsearched:
    """Collects paths with the reason why nothing is known of them. Empty, it is false.

    ``remarks`` are for what makes an answer longer than asked for, not shorter.
    """

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self._shown: dict[str, str] = {}
        self._count = 0
        self._rest = ""

    def __bool__(self) -> bool:
        return self._count > 0 or self._rest != ""

    @property
    def count(self) -> int:
        return self._count

    def add(self, path: str, why: str) -> None:
        self._count += 1
        if len(self._shown) < _SHOWN:
            self._shown[path] = why

    def add_error(self, path: str, error: ToolError) -> None:
        """For what could not be opened; what is gone by now is not missed."""
        if error.type not in _GONE:
            why = error.message.replace(f": {path!r}", "").replace(f": {path}", "").replace(f"{path} ", "")
            self.add(path, clip(why, 200))

    def give_up(self, why: str) -> None:
        """For a search that ended before its end."""
        self._rest = why

    def sentences(self) -> Iterator[str]:
        """What the answer has to say of it, each in parentheses and on a line of its own."""
        if self._count:
            named = "; ".join(
                f"{clip(one_line(path), 200)}: {clip(one_line(why), 200)}" for path, why in self._shown.items()
            )
            more = f"; and {self._count - len(self._shown)} more" if self._count > len(self._shown) else ""
            yield f"(Not searched, or not as a whole: {named}{more}.)"
        if self._rest:
            yield f"({self._rest})"
        yield from (f"({remark})" for remark in self.remarks)
