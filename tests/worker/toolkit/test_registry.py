"""The registry: one map for all tools, the order they are offered in, and what the switches leave of them."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.shared.errors import Invalid, Misconfigured
from deputize.shared.settings import Settings
from deputize.worker.toolkit.registry import Registry, available_tools, default_kit, prepare_kit, tool_cards
from deputize.worker.tools.base import (
    AnyTool,
    Availability,
    Effect,
    InitContext,
    Kind,
    Origin,
    Params,
    Tool,
    ToolContext,
    ToolResult,
)
from deputize.worker.tools.builtin import BUILTIN, DEFAULT_KIT


class NoParams(Params):
    pass


class Sample(Tool[NoParams]):
    """A sample."""

    kind = Kind.OTHER
    effect = Effect.EFFECTFUL
    params = NoParams

    def __init__(
        self,
        name: str,
        source: Any = "builtin",
        server: str | None = None,
        aliases: tuple[str, ...] = (),
        **availability: Any,
    ) -> None:
        self.name = name
        self.origin = Origin(source, server)
        self.aliases = aliases
        self.availability = Availability(**availability)

    async def run(self, ctx: ToolContext, params: NoParams) -> ToolResult:
        return ToolResult(self.name)


class Needy(Sample):
    """A sample that can be had only where there is a provider."""

    def configured(self, settings: Settings) -> AnyTool | None:
        return Sample(self.name, switch=self.availability.switch) if settings.tools.search_provider else None


def names(tools: Any) -> list[str]:
    return [tool.name for tool in tools]


def settings(**tools: Any) -> Settings:
    return Settings.load(environ={}, tools=tools)


@pytest.mark.requirement("S002-001", "S004-001", "S004-025", "S004-031")
def test_builtin_tools_come_first_then_discovered_ones_then_mcp_by_server() -> None:
    mixed = [
        Sample("m2", "mcp", "zebra"),
        Sample("d2", "discovered"),
        Sample("m1", "mcp", "ant"),
        Sample("b2"),
        Sample("m3", "mcp", "ant"),
        Sample("d1", "discovered"),
        Sample("b1"),
    ]
    registry = Registry(mixed)
    assert names(registry) == ["b2", "b1", "d2", "d1", "m1", "m3", "m2"]
    assert list(registry.kit(["*"])) == names(registry)
    assert len(registry) == 7


@pytest.mark.requirement("S004-026", "S004-029", "S002-020", "S002-038")
def test_a_tool_is_added_found_replaced_with_a_warning_and_taken_away(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Sample("one", aliases=("uno",)), Sample("one", "mcp", "git")
    registry = Registry([first])
    assert registry.get("one") is registry.get("uno") is first
    assert not caplog.text
    registry.register(second)
    assert "tool one of git replaces one of the same name" in caplog.text
    assert (registry.get("one"), registry.get("uno"), len(registry)) == (second, None, 1)
    registry.unregister("one")
    registry.unregister("one")
    assert (registry.get("one"), len(registry)) == (None, 0)


def test_a_name_comes_before_an_alias() -> None:
    named, aliased = Sample("search"), Sample("grep", aliases=("search",))
    assert Registry([aliased, named]).get("search") is named


@pytest.mark.requirement("S004-030")
def test_the_tools_of_one_server_are_recognized_by_the_server_and_not_by_their_names() -> None:
    here, there = Sample("mcp__git__log", "mcp", "git"), Sample("log", "mcp", "git")
    other, fake = Sample("mcp__git__status", "mcp", "git_two"), Sample("mcp__git__diff", "discovered")
    registry = Registry([here, there, other, fake])
    assert registry.of_server("git") == [here, there]
    assert registry.of_server("none") == []


@pytest.mark.requirement("S004-028", "S002-023", "S000-029")
def test_declarations_are_what_the_models_api_wants() -> None:
    assert Registry([Sample("one")]).declarations() == [
        {
            "name": "one",
            "description": "A sample.",
            "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
        }
    ]
    assert [each["name"] for each in Registry(BUILTIN).declarations()] == names(BUILTIN)


@pytest.mark.requirement("S002-050")
def test_what_comes_from_elsewhere_is_in_the_default_kit_and_may_be_narrowed_by_pattern() -> None:
    registry = Registry([*BUILTIN, Sample("made", "discovered"), Sample("mcp__git__log", "mcp", "git"), Sample("ours")])
    assert list(registry.kit(None)) == [*DEFAULT_KIT, "made", "mcp__git__log"]
    assert list(registry.kit(None, ("glob", "ours"))) == ["glob", "ours", "made", "mcp__git__log"]
    assert list(registry.kit(["mcp__git__*", "glob"])) == ["glob", "mcp__git__log"]


def test_a_tool_by_name_only_is_not_meant_by_a_pattern() -> None:
    registry = Registry([Sample("plain"), Sample("special", by_name_only=True, aliases=("extra",))])
    assert list(registry.kit(["*"])) == ["plain"]
    assert list(registry.kit(["special"])) == list(registry.kit(["extra"])) == ["special"]
    with pytest.raises(Invalid, match=r"no tool is called 'sp\*'"):
        registry.kit(["sp*"])


@pytest.mark.requirement("S000-001", "S000-008", "S000-011", "S000-025")
@pytest.mark.parametrize(
    ("switch", "off"),
    [
        ("enable_bash", {"bash", "bash_output", "bash_kill"}),
        ("enable_file_tools", {"read_file", "write_file", "edit_file"}),
        ("enable_search", {"glob", "grep"}),
    ],
)
def test_a_switch_decides_over_its_tools_together(switch: str, off: set[str]) -> None:
    """False: not offered. True: in every kit. Unset: the default kit has them (C19)."""
    everything = set(names(available_tools(settings())))
    assert off <= everything
    left = set(names(available_tools(settings(**{switch: False}))))
    assert not off & left
    assert not off & set(Registry(available_tools(settings(**{switch: False}))).kit(None))
    assert off <= set(default_kit(settings(**{switch: True})))
    assert set(DEFAULT_KIT) == set(Registry(available_tools(settings())).kit(None, default_kit(settings())))


@pytest.mark.requirement("S000-025")
def test_a_tool_switched_on_is_in_the_kit_and_one_unset_is_had_by_name() -> None:
    assert "write_todos" in names(available_tools(settings()))
    assert "write_todos" not in default_kit(settings())
    assert "write_todos" in default_kit(settings(enable_todos=True))
    with pytest.raises(Invalid, match="no tool is called 'write_todos'"):
        Registry(available_tools(settings(enable_todos=False))).kit(["write_todos"])


def test_what_the_operator_has_set_up_is_in_the_default_kit() -> None:
    tools = [Sample("plain"), Sample("set_up", by_default=True)]
    assert default_kit(settings(), tools) == (*DEFAULT_KIT, "set_up")


@pytest.mark.requirement("S000-001", "S000-025")
def test_a_tool_that_cannot_be_had_is_not_offered() -> None:
    needy = Needy("web_search", switch="enable_web")
    assert available_tools(settings(), [needy]) == []
    assert names(available_tools(settings(search_provider="brave"), [needy])) == ["web_search"]
    assert available_tools(settings(search_provider="brave", enable_web=False), [needy]) == []


async def test_a_run_is_informed_of_a_tool_that_cannot_be_made_ready() -> None:
    class Broken(Sample):
        async def ready(self, ctx: InitContext) -> AnyTool | None:
            raise Misconfigured(f"{self.name} is not set up")

    class Denied(Sample):
        async def ready(self, ctx: InitContext) -> AnyTool | None:
            return None

    warned: list[str] = []
    kit = Registry([Sample("plain"), Broken("broken"), Denied("denied")]).kit(["*"])
    assert list(await prepare_kit(kit, InitContext("x"), warned.append)) == ["plain"]
    assert warned == ["broken is not set up"]


def test_a_card_shows_the_origin_of_a_tool() -> None:
    tools = [Sample("b"), Sample("d", "discovered"), Sample("m", "mcp", "git")]
    assert [card.source for card in tool_cards(tools)] == ["builtin", "discovered", "mcp:git"]


def test_an_attribute_that_would_have_no_effect_is_refused() -> None:
    """A tool that sets ``needs_sandbox`` where it does not count would be called without a sandbox."""
    with pytest.raises(TypeError, match=r"Old\.needs_sandbox has no effect; set it in availability = Availability"):
        type("Old", (Sample,), {"needs_sandbox": True})
