// One line for an event, as the command line shows it; null for events that are only for programs.

import { answerWords, cut, seconds, visible } from "./text.js";

const WAITS_FOR = { rate: "the model's endpoint", shared_prefix: "a cached prefix" };
const SIGNS = { completed: "✓", failed: "✗" };

export function stepLine(step) {
  const trouble = step.error ? `: ${cut(step.error, 300)}` : "";
  return `${SIGNS[step.status] ?? "…"} ${cut(step.title || step.toolName, 200)}${trouble}`;
}

const LINES = {
  run_queued: () => "queued",
  run_started: (event) => `running on ${visible(event.worker)} with ${visible(event.model)}`,
  run_resumed: (event) => `taken over by ${visible(event.worker)} at turn ${event.fromTurn}: ${visible(event.reason)}`,
  run_retried: (event) => `done again from the start (retry ${event.retry} of ${event.of}): ${visible(event.error)}`,
  run_finished: ({ result }) => `${visible(result.status)} (${visible(result.terminationReason)})`,
  turn_started: (event) => `turn ${event.turn}`,
  replied: (event) => cut(event.text, 2000) || null,
  model_retried: (event) => `the model is asked again in ${seconds(event.delaySeconds)}: ${visible(event.error)}`,
  waiting: (event) =>
    `waits for ${WAITS_FOR[event.why] ?? visible(event.why)}${event.detail ? `: ${visible(event.detail)}` : ""}`,
  resumed_waiting: (event) => `goes on after ${seconds(event.seconds)}`,
  step_started: (event) => stepLine(event.step),
  step_completed: (event) => stepLine(event.step),
  permission_requested: (event) => `asks for permission: ${visible(event.step.title)}`,
  permission_answered: (event) => `permission: ${answerWords(event.outcome, event.by, event.reason)}`,
  progress: (event) => visible(event.message),
  error: (event) => `${visible(event.kind)}: ${visible(event.message)}`,
};

export function eventLine(event) {
  return LINES[event.type]?.(event) ?? null;
}
