"""An evaluation as a log of Inspect, version 2 of its JSON format, so that `inspect view` shows it.

It was read in inspect_ai 0.3.285, whose ``read_eval_log`` accepts such a log, and whose page lists it and opens each
sample. Each task is a sample, and each run an epoch of it. A success is the score "C", all else is "I".
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from ...shared.delegation import ToolAgentResult, Usage
from ...shared.fleet import own_version
from ...shared.ids import moment_of
from ...shared.wire import now
from .evaluation import FIGURES, Evaluation, TaskRuns

_SCORER = "deputize"
SEVERAL = "several"
"""The model of an evaluation whose requests name more than one."""


def file_name(name: str) -> str:
    """Returns the name of a log's file. Inspect lists only JSON files whose name begins with a time."""
    return f"{now():%Y-%m-%dT%H-%M-%S+00-00}_{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}_{uuid4().hex}.json"


def inspect_log(evaluation: Evaluation, name: str, models: Sequence[str]) -> str:
    """Returns the log, as JSON. ``name`` is that of the file of tasks."""
    at, tasks = now().isoformat(), evaluation.tasks
    begun = datetime.fromtimestamp(min(moment_of(run.delegation_id) for run in evaluation.results), UTC).isoformat()
    model = models[0] if len({*models}) == 1 else SEVERAL
    samples = [_sample(task, number, run, model) for task in tasks for number, run in enumerate(task.ended, 1)]
    metrics = {each: {"name": each, "value": evaluation.figure(each)[0]} for each in FIGURES.values()}
    score = {"name": _SCORER, "scorer": _SCORER, "scored_samples": len(samples), "metrics": metrics}
    log = {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": uuid4().hex,
            "run_id": uuid4().hex,
            "created": at,
            "task": name,
            "task_id": name,
            "dataset": {"name": name, "samples": len(tasks), "sample_ids": [task.number for task in tasks]},
            "model": model,
            "config": {"epochs": evaluation.k},
            "packages": {"deputize": own_version()},
        },
        "plan": {"name": "plan", "steps": []},  # without one Inspect does not read the head alone
        "results": {"total_samples": len(samples), "completed_samples": len(samples), "scores": [score]},
        "stats": {"started_at": begun, "completed_at": at},  # `inspect view` shows the time between
        "samples": samples,
    }
    return json.dumps(log, ensure_ascii=False)


def _sample(task: TaskRuns, number: int, run: ToolAgentResult, model: str) -> dict[str, Any]:
    words, seconds, verdict = {"role": "assistant", "content": run.summary}, run.execution_time_ms / 1000, run.headline
    facts = {"delegationId": run.delegation_id, "terminationReason": run.termination_reason.value, "verdict": verdict}
    return {
        "id": task.number,
        "epoch": number,
        "input": task.title,
        "target": "",
        "messages": [{"role": "user", "content": task.title}, words],
        "output": {"model": model, "choices": [{"message": words, "stop_reason": "stop"}]},
        "scores": {_SCORER: {"value": "C" if run.success else "I", "explanation": run.ending, "metadata": facts}},
        "metadata": facts,
        "model_usage": {model: _usage(run.usage)},
        "total_time": seconds,
        "working_time": seconds,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total,
        "input_tokens_cache_write": usage.cache_write_tokens,
        "input_tokens_cache_read": usage.cache_read_tokens,
        "total_cost": usage.cost_usd,
    }
