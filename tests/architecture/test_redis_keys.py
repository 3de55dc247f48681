"""Every name in Redis is built in one file and stands in the tables of shared/docs/redis-keys.md."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from deputize.shared.runs import keys
from tests.architecture.sources import PACKAGES, ROOT, name, nodes, python_files, tree

A_NAME = re.compile(r"deputize:[a-z]")
BUILDS_MANY = {"keys_of"}


def _built() -> set[str]:
    """Every constant of the module, and what each of its functions returns for ``<parameter>``."""
    names = {value for value in vars(keys).values() if isinstance(value, str) and value.startswith("deputize:")}
    for function in vars(keys).values():
        if inspect.isfunction(function) and function.__name__ not in BUILDS_MANY:
            names.add(function(*(f"<{parameter}>" for parameter in inspect.signature(function).parameters)))
    return names


def _in_the_tables() -> list[str]:
    page = (ROOT / "shared" / "docs" / "redis-keys.md").read_text("utf-8")
    return re.findall(r"^\| `(deputize:[^`]+)` \|", page, re.MULTILINE)


def test_the_table_has_every_key_and_channel_once() -> None:
    assert sorted(_in_the_tables()) == sorted(_built())


def test_what_ends_with_a_delegation_is_every_key_of_one() -> None:
    assert {*keys.keys_of("<id>")} == {built for built in _built() if built.startswith(keys.record_key("<id>"))}


def test_no_other_file_builds_a_name_in_redis() -> None:
    elsewhere = [
        f"{name(path)}:{node.lineno} {node.value}"
        for path in python_files(*PACKAGES)
        if path != Path(keys.__file__ or "").resolve()
        for node in nodes(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and A_NAME.match(node.value)
    ]
    assert elsewhere == []


def test_a_message_is_no_name_in_redis() -> None:
    texts = ("deputize:run:{", "deputize:bus", "deputize: no", "urn:deputize:")
    assert [text for text in texts if A_NAME.match(text)] == ["deputize:run:{", "deputize:bus"]


def test_the_user_with_the_least_rights_has_every_command_of_a_script() -> None:
    rules = (ROOT / "shared" / "redis_user.acl").read_text("utf-8")
    granted = {rule.upper() for rule in re.findall(r"\+(\w+)", rules)}
    scripts = (ROOT / "shared" / "runs" / "lua").glob("*.lua")
    called = {name for path in scripts for name in re.findall(r"redis\.call\('(\w+)'", path.read_text("utf-8"))}
    assert called - granted == set()
