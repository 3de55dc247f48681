"""The names of spans, attributes and values: OpenTelemetry's conventions for generative AI, and what is our own.

``VERSION`` is that of https://github.com/open-telemetry/semantic-conventions-genai. It is under development: a later
version that renames something is a change of this file, and a line in the changelog.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...shared.delegation import Usage

VERSION = "0.1.0"
SCHEMA_URL = f"https://opentelemetry.io/schemas/gen-ai/{VERSION}"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable by which prompts, replies, arguments and results are recorded."""
CONTENT_IN_SPANS = ("true", "span_only", "span_and_event")
"""Its values for which they are recorded in spans."""

# Operations: a span is named by one of them and by what it is about.
INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"

# Attributes of several of them.
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
CONVERSATION = "gen_ai.conversation.id"
ERROR_TYPE = "error.type"
INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"

# invoke_agent
AGENT_NAME = "gen_ai.agent.name"

# chat
STREAM = "gen_ai.request.stream"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"

# execute_tool
TOOL_NAME, TOOL_CALL = "gen_ai.tool.name", "gen_ai.tool.call.id"
TOOL_ARGUMENTS, TOOL_RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"

# Values
ANTHROPIC, SCRIPTED = "anthropic", "scripted"
"""Providers: any endpoint that speaks the Messages API, and the model that follows a script."""
PROVIDERS = {"bedrock": "aws.bedrock"}
"""Those of platforms, as their own SDK names them; it has ``anthropic`` for the others, which Anthropic operates."""
OTHER_ERROR, TOOL_ERROR, DENIED = "_OTHER", "tool_error", "permission_denied"
"""Types of errors, beside the termination reasons of runs."""

# Our own
ATTEMPT, TURN = "deputize.attempt", "deputize.turn"
QUEUED = "deputize.queued_seconds"
"""Seconds from the acceptance to the first attempt."""
TERMINATION_REASON = "deputize.termination_reason"
INTERRUPTED = "deputize.interrupted"
"""Whether the attempt ended before its run did: another one goes on with it."""
COST = "deputize.cost_usd"
RETRIED, WAITING, WHY, SECONDS = "model_retried", "waiting", "deputize.why", "deputize.seconds"
"""Events of a span, named as those of a delegation, and their attributes."""


def of_usage(usage: Usage) -> Mapping[str, int | float]:
    """Returns the attributes of tokens and cost; the conventions' input tokens include those of the cache."""
    read, write = usage.cache_read_tokens, usage.cache_write_tokens
    found = {INPUT_TOKENS: usage.input_tokens + read + write, OUTPUT_TOKENS: usage.output_tokens}
    further = {CACHE_READ_TOKENS: read, CACHE_WRITE_TOKENS: write, COST: usage.cost_usd}
    return found | {name: number for name, number in further.items() if number}
