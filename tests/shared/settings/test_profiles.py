"""Profiles of the sandbox: what they leave open, who may define them, and that one within another is stricter."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from deputize.shared.errors import Invalid, Misconfigured
from deputize.shared.request_rules import sandbox_of
from deputize.shared.settings import SandboxSettings, Settings
from deputize.shared.settings.listing import as_toml, setting_lines
from deputize.shared.settings.sandbox import RunSandbox
from deputize.worker.web.egress_proxy import EgressProxy
from deputize.worker.web.targets import ForbiddenTarget, target

PROFILES = """
[sandbox]
memory_bytes = 1_000_000_000
command_seconds = 50
setup = "make"

[sandbox.profiles.online]
allowed_hosts = ["*.Example.org"]
show = ["kit"]
command_seconds = 600
setup = ""

[agents.surfer]
sandbox = "online"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here/deputize.toml").write_text(PROFILES)
    return tmp_path / "here"


def test_a_profile_inherits_the_sandbox_also_in_child_processes_and_written_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.load(folder / "deputize.toml", environ={})
    passed = {name: text for name, text in settings.child_environment().items() if name.startswith("DEPUTIZE_")}
    (tmp_path / "again.toml").write_text("\n".join(as_toml(setting_lines(settings))))
    for each in (settings, Settings.load(environ=passed), Settings.load(tmp_path / "again.toml", environ={})):
        online = sandbox_of(["surfer"], each)
        assert (online.allowed_hosts, online.show, online.setup) == (["*.example.org"], [folder / "kit"], "")
        assert (online.command_seconds, online.memory_bytes) == (600, 1_000_000_000)
        assert sandbox_of([None], each) == each.sandbox == settings.sandbox
    later = Settings.load(environ=passed | {"DEPUTIZE_SANDBOX_MEMORY_BYTES": "2000000000"})
    assert sandbox_of(["surfer"], later).memory_bytes == 2_000_000_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[sandbox.profiles.a]\nshare = 0.5", "a profile has no 'share': it holds for the whole worker"),
        ("[sandbox.profiles.a]\nenabled = false", "a profile has no 'enabled'"),
        ("[sandbox.profiles.a]\nalowed_hosts = []", "sandbox/profiles/a/alowed_hosts: .* did you mean 'allowed_hosts'"),
        ("[sandbox.profiles.a]\nprocesses = 1", "sandbox/profiles/a/processes"),
        ("[sandbox]\nprofiles = 3", "sandbox/profiles"),
        ("[sandbox.profiles.online]\n[agents.b]\nsandbox = 'onlin'", "the agent 'b': .* did you mean online"),
        ("[agents.b]\nsandbox = 'a'", "define none"),
    ],
)
def test_a_mistake_in_a_profile_or_its_name_stops_the_start(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(Misconfigured, match=why):
        Settings.load(tmp_path / "mine.toml", environ={})


def test_only_a_file_that_is_named_defines_profiles_or_chooses_one(folder: Path, tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    found = Settings.load(environ=environ)
    assert (found.agents, found.sandbox.profiles) == ({}, {})
    named = Settings.load(folder / "deputize.toml", environ=environ)
    assert sandbox_of(["surfer"], named).allowed_hosts == ["*.example.org"]


def test_the_sandbox_of_an_agent_that_is_not_known_is_not_guessed() -> None:
    with pytest.raises(Invalid, match=r"no agent 'gone'.*all workers need the same agents"):
        sandbox_of([None, "gone"], Settings())


HOSTS = ["*", "*.example.org", "example.org", "a.example.org", "*.a.example.org", "b.a.example.org", "192.0.2.1", "*.1"]
ASKED = ["example.org", "a.example.org", "b.a.example.org", "x.test", "192.0.2.1", "192.0.2.2", "a.1"]
PATHS = [Path("/opt/a"), Path("/opt/b"), Path("/opt/c")]


def some(random: Random) -> dict[str, Any]:
    numbers = {name: random.randint(1 << 26, 1 << 30) for name in RunSandbox.model_fields if name.endswith("_bytes")}
    numbers |= {
        "command_seconds": random.randint(1, 9),
        "cpus": random.random() + 1,
        "processes": random.randint(16, 99),
    }
    lists = {"allowed_hosts": random.sample(HOSTS, random.randint(0, 3)), "show": random.sample(PATHS, 2)}
    return {**numbers, **lists, "cpus": random.random() + 1, "find_tools": random.choice([True, False])}


def reached(sandbox: SandboxSettings) -> set[str]:
    proxy = EgressProxy("", sandbox.allowed_hosts, 1)
    found: set[str] = set()
    for host in ASKED:
        try:
            proxy.check(target(f"https://{host}/"))
        except ForbiddenTarget:
            continue
        found.add(host)
    return found


@pytest.mark.costly
def test_a_sandbox_within_another_one_is_in_nothing_wider_than_either() -> None:
    random = Random(3)
    of_set_up = {name for name in RunSandbox.model_fields if name.startswith("setup")}
    for _ in range(2000):
        agents = {"outer": {"sandbox": "outer"}, "inner": {"sandbox": "inner"}, "plain": {}}
        profiles = {"outer": some(random), "inner": some(random)}
        settings = Settings.model_validate({"sandbox": {"profiles": profiles, "setup": "make"}, "agents": agents})
        outer, inner = sandbox_of(["outer"], settings), sandbox_of(["inner"], settings)
        child = sandbox_of(["outer", "plain", "inner"], settings)
        assert reached(child) == reached(outer) & reached(inner)
        assert {*child.show} == {*outer.show} & {*inner.show}
        for name in RunSandbox.model_fields.keys() - of_set_up - {"show", "allowed_hosts"}:
            assert getattr(child, name) == min(getattr(outer, name), getattr(inner, name))
        assert {getattr(child, name) == getattr(outer, name) for name in of_set_up} == {True}
        assert sandbox_of(["outer", "plain"], settings) == outer
