"""Limits of JSON Schemas, and validation of arguments. Also a program, for a parent process that may kill it.

It imports nothing of this project. Requests and responses are frames: eight bytes of length, then JSON. A request is
``{"schema", "seconds"}`` (check the schema) or ``{"schema", "arguments", "seconds"}`` (validate the arguments);
``seconds`` are CPU time of this process, so that a busy machine does not make a schema look slow.
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
from importlib import import_module
from itertools import chain, islice
from typing import Any, NoReturn

MAX_BYTES = 128 * 1024
MAX_DEPTH = 100
"""Levels of JSON; a nested object takes two."""
MAX_PARTS = 10_000
"""Objects, lists and values of one schema."""
MAX_FAN_OUT = 10_000
"""Subschemas applied to one value: ``allOf`` of two references, nested 26 times, is 67 million."""
MAX_MISTAKES = 5
FRAME = struct.Struct(">Q")
_MAX_COLLECTED = 200
"""Mistakes collected before the first ones are selected."""
_MEMORY = 1024 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_SLOW = {"pattern", "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"}
"""Keywords that take more than one step per value."""
_REFERENCE_KEYWORDS = {"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"}
"""Keywords that change reference resolution in ways not analysed here."""


class _InvalidSchema(ValueError):
    """The schema itself is invalid."""


class _Overrun(BaseException):
    """The time limit was exceeded. A ``BaseException``, so that no library catches it."""


def cost(schema: Mapping[str, Any], text: str) -> int | None:
    """Returns the most steps that validating one value can take; None if unknown. ``text`` is the schema as JSON.

    Raises ``_InvalidSchema`` for a schema that is too large, too deep or applies too many subschemas to one value.
    """
    if len(text) > MAX_BYTES:
        raise _InvalidSchema(f"they are longer than {MAX_BYTES} bytes of JSON")
    parts = _parts(schema)
    analysis = _SchemaAnalysis(schema)
    try:
        analysis.fan_out(schema)
        for part in parts:
            if isinstance(part, dict):
                analysis.fan_out(part)
        steps = analysis.steps(schema)
    except RecursionError:
        raise _InvalidSchema("their references follow each other without end, or nearly so") from None
    slow = any(isinstance(part, dict) and (part.keys() & _SLOW or part.keys() & _REFERENCE_KEYWORDS) for part in parts)
    return None if slow or analysis.endless else steps


def _parts(schema: Any) -> list[Any]:
    """Returns all objects, lists and values of the schema."""
    found: list[Any] = []
    level: Sequence[Any] = [schema]
    for _ in range(MAX_DEPTH + 1):
        found += level
        if len(found) > MAX_PARTS:
            raise _InvalidSchema(f"they have more than {MAX_PARTS} parts")
        inner = [part for part in level if isinstance(part, dict | list)]
        if not inner:
            return found
        level = list(chain.from_iterable(part.values() if isinstance(part, dict) else part for part in inner))
    raise _InvalidSchema(f"they are nested more than {MAX_DEPTH} deep")


class _SchemaAnalysis:
    """A schema with its references followed. Each part is analysed once, however often it is referenced."""

    def __init__(self, root: Any) -> None:
        self.endless = False
        """Whether a part is recursive or has an external reference: then the time depends on the arguments."""
        self._root = root
        self._fans: dict[int, int] = {}
        self._steps: dict[int, int] = {}

    def fan_out(self, part: Any) -> int:
        """Returns the number of subschemas applied to a value that this part is applied to."""
        if not isinstance(part, dict):
            return 1
        known = self._fans.get(id(part))
        if known is None:
            self._fans[id(part)] = 1  # for recursion
            nested = [part[key] for key in _LISTS if isinstance(part.get(key), list)]
            same = [*chain.from_iterable(nested), *(part[key] for key in _SINGLE if key in part)]
            same += self._target(part)
            known = self._fans[id(part)] = 1 + sum(map(self.fan_out, same))
            if known > MAX_FAN_OUT:
                raise _InvalidSchema(f"one value would be checked against more than {MAX_FAN_OUT} subschemas")
        return known

    def steps(self, part: Any) -> int:
        """Returns its size with every reference expanded."""
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


def schema_error(schema: Mapping[str, Any]) -> str | None:
    """Returns why this is not a valid JSON Schema, or None. Takes a quarter of a millisecond per subschema."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return error.message[:1000]
    return None


def mistakes(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[dict[str, str]]:
    """Returns the first mistakes, as pointer and detail; empty for valid arguments. Raises ``_InvalidSchema``."""
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    validator = Draft202012Validator(schema, registry=Registry())  # which fetches nothing
    try:
        found = list(islice(validator.iter_errors(dict(arguments)), _MAX_COLLECTED))
    except RecursionError:  # a schema may refer to itself for ever
        raise _InvalidSchema("its schema refers to itself without end") from None
    except (Unresolvable, re.error) as error:  # or to what is not there
        raise _InvalidSchema(str(error)[:500]) from None
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
        wrong = schema_error(schema)
        return {"wrong": wrong} if wrong else {"cost": steps}
    except _InvalidSchema as error:
        return {"wrong": str(error)}


def main() -> None:
    import_module("jsonschema")  # before the limits, so that its import counts for no request
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
        except Exception as error:  # noqa: BLE001 - any failure of the library is caused by the schema
            answer = {"wrong": f"its schema cannot be checked: {error!r}"[:500]}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        body = json.dumps(answer).encode()
        outgoing.write(FRAME.pack(len(body)) + body)
        outgoing.flush()


def _stop(*_: object) -> NoReturn:
    raise _Overrun


if __name__ == "__main__":
    main()
