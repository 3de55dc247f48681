"""Values that are computed when they are first asked for."""

from __future__ import annotations

from deputize.shared.lazy import lazy


class Text:
    times = 0

    @lazy
    def words(self) -> list[str]:
        """The words."""
        self.times += 1
        return ["a"]


def test_a_value_is_computed_once_for_each_instance() -> None:
    first, second = Text(), Text()
    assert first.words is first.words
    assert second.words is not first.words
    assert (first.times, second.times) == (1, 1)


def test_the_class_has_the_property_itself() -> None:
    assert isinstance(Text.words, lazy)
    assert Text.words.__doc__ == "The words."
