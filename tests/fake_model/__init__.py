"""A model endpoint for tests: real sockets on loopback, strict where the real one is strict, faulty on demand."""

from tests.fake_model.cache import PromptCache
from tests.fake_model.server import Asked, FakeModel
from tests.fake_model.turns import Fault, Turn, bad_json, call, cut, overload, refuse, reset, stall, text, thinking

__all__ = [
    "Asked",
    "FakeModel",
    "Fault",
    "PromptCache",
    "Turn",
    "bad_json",
    "call",
    "cut",
    "overload",
    "refuse",
    "reset",
    "stall",
    "text",
    "thinking",
]
