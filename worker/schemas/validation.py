"""What a JSON Schema may be, and whether arguments fit it. As a program: the same, for a parent that may kill it.

Nothing of this project is imported here. In and out go frames: eight bytes of length, then JSON. A request is
``{"schema", "seconds"}`` (may it be declared?) or ``{"schema", "arguments", "seconds"}`` (do the arguments fit?);
``seconds`` are of this process's CPU, so that a busy machine does not make a schema look slow.
"""

from __future__ import annotations

import ctypes
import json
import re
import resource
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any, NoReturn

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_BYTES = 128 * 1024
MAX_DEPTH = 100
"""Levels of JSON, of which a nested object takes two."""
MAX_PARTS = 10_000
"""Objects, lists and values of one schema."""
MAX_FAN_OUT = 10_000
"""Subschemas that one value is held against: ``allOf`` of two references, 26 times over, is 67 million."""
MAX_MISTAKES = 5
FRAME = struct.Struct(">Q")
_LOOKED_AT = 200
"""Mistakes that are found before the first ones are told."""
_MEMORY = 1024 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_SLOW = {"pattern", "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"}
"""What takes more than one step a value."""
_ELSEWHERE = {"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"}
"""What makes a reference mean something that is not looked up here."""


class Misdeclared(ValueError):
    """The schema itself is at fault."""


class _Overrun(BaseException):
    """The time is up. No library catches it by accident."""


def cost(schema: Mapping[str, Any], text: str) -> int | None:
    """Steps that one value of the arguments can take at most; None where nobody can tell. ``text`` is its JSON.

    Raises ``Misdeclared`` for what is too large or too deep, or holds one value against too many subschemas.
    """
    if len(text) > MAX_BYTES:
        raise Misdeclared(f"they are longer than {MAX_BYTES} bytes of JSON")
    parts = _parts(schema)
    unfolding = _Unfolding(schema)
    try:
        unfolding.fan_out(schema)
        for part in parts:
            if isinstance(part, dict):
                unfolding.fan_out(part)
        steps = unfolding.steps(schema)
    except RecursionError:
        raise Misdeclared("their references follow each other without end, or nearly so") from None
    slow = any(isinstance(part, dict) and (part.keys() & _SLOW or part.keys() & _ELSEWHERE) for part in parts)
    return None if slow or unfolding.endless else steps


def _parts(schema: Any) -> list[Any]:
    """All that the schema is made of."""
    found: list[Any] = []
    level: Sequence[Any] = [schema]
    for _ in range(MAX_DEPTH + 1):
        found += level
        if len(found) > MAX_PARTS:
            raise Misdeclared(f"they have more than {MAX_PARTS} parts")
        inner = [part for part in level if isinstance(part, dict | list)]
        if not inner:
            return found
        level = list(chain.from_iterable(part.values() if isinstance(part, dict) else part for part in inner))
    raise Misdeclared(f"they are nested more than {MAX_DEPTH} deep")


class _Unfolding:
    """A schema with its references followed. Each part is looked at once, however often it is referred to."""

    def __init__(self, root: Any) -> None:
        self.endless = False
        """Whether a part refers to itself, or to what is not here: then the arguments say how long it takes."""
        self._root = root
        self._fans: dict[int, int] = {}
        self._steps: dict[int, int] = {}

    def fan_out(self, part: Any) -> int:
        """Subschemas that a value is held against which is held against this one."""
        if not isinstance(part, dict):
            return 1
        known = self._fans.get(id(part))
        if known is None:
            self._fans[id(part)] = 1  # where it refers to itself
            nested = [part[key] for key in _LISTS if isinstance(part.get(key), list)]
            same = [*chain.from_iterable(nested), *(part[key] for key in _SINGLE if key in part)]
            same += self._target(part)
            known = self._fans[id(part)] = 1 + sum(map(self.fan_out, same))
            if known > MAX_FAN_OUT:
                raise Misdeclared(f"one value would be held against more than {MAX_FAN_OUT} subschemas")
        return known

    def steps(self, part: Any) -> int:
        """The size of it with every reference replaced by what it refers to."""
        if not isinstance(part, dict | list):
            return 1
        known = self._steps.get(id(part))
        if known == 0:
            self.endless = True
        if known is None:
            self._steps[id(part)] = 0
            inner = [*part.values(), *self._target(part)] if isinstance(part, dict) else part
            known = self._steps[id(part)] = 1 + sum(map(self.steps, inner))
        return known

    def _target(self, part: Mapping[str, Any]) -> list[Any]:
        where = part.get("$ref")
        if not isinstance(where, str):
            return []
        found = self._root
        try:
            for key in where.removeprefix("#").split("/")[1:]:
                key = key.replace("~1", "/").replace("~0", "~")
                found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError):
            found = None
        if found is None or not where.startswith("#") or "%" in where:
            self.endless = True
            return []
        return [found]


def wrong_in(schema: Mapping[str, Any]) -> str | None:
    """Why this is no JSON Schema, or None. Takes a quarter of a millisecond a subschema."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return error.message[:1000]
    return None


def mistakes(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[dict[str, str]]:
    """The first mistakes, as pointer and detail; none where the arguments fit. Raises ``Misdeclared``."""
    validator = Draft202012Validator(schema, registry=Registry())  # which fetches nothing
    try:
        found = list(islice(validator.iter_errors(dict(arguments)), _LOOKED_AT))
    except RecursionError:  # a schema may refer to itself for ever
        raise Misdeclared("its schema refers to itself without end") from None
    except (Unresolvable, re.error) as error:  # or to what is not there
        raise Misdeclared(str(error)[:500]) from None
    found.sort(key=lambda error: list(map(str, error.absolute_path)))
    return [
        {"pointer": "/".join(map(str, error.absolute_path)), "detail": error.message[:500]}
        for error in found[:MAX_MISTAKES]
    ]


def _answer(asked: bytes) -> dict[str, Any]:
    signal.setitimer(signal.ITIMER_PROF, 10)  # for reading it
    request = json.loads(asked)
    schema = request["schema"]
    signal.setitimer(signal.ITIMER_PROF, request["seconds"])
    try:
        if "arguments" in request:
            return {"mistakes": mistakes(schema, request["arguments"])}
        steps = cost(schema, json.dumps(schema))
        wrong = wrong_in(schema)
        return {"wrong": wrong} if wrong else {"cost": steps}
    except Misdeclared as error:
        return {"wrong": str(error)}


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGPROF, _stop)
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    while head := incoming.read(FRAME.size):
        try:
            answer = _answer(incoming.read(FRAME.unpack(head)[0]))
        except (_Overrun, MemoryError):
            answer = {"overrun": True}
        except Exception as error:  # noqa: BLE001 - whatever a schema leads the library into, it is the schema's fault
            answer = {"wrong": f"its schema cannot be judged: {error!r}"[:500]}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        said = json.dumps(answer).encode()
        outgoing.write(FRAME.pack(len(said)) + said)
        outgoing.flush()


def _stop(*_: object) -> NoReturn:
    raise _Overrun


if __name__ == "__main__":
    main()
