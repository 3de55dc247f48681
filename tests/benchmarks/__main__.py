"""`python -m tests.benchmarks [NAME…] [--runs N] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import uvloop

from tests.benchmarks.number import Number, table

NUMBERS = (
    "editing",
    "tracing",
    "startup",
    "searching",
    "dispatch",
    "queueing",
    "listing",
    "metrics",
    "notifying",
    "page",
    "verification",
    "suites",
    "attempts",
    "snapshots",
    "environments",
    "latency",
    "throughput",
    "carrying",
    "turn_cpu",
    "sharing",
    "durability",
    "money",
    "cancelling",
    "losing",
    "recovery",
    "failover",
    "evaluation",
    "deliveries",
    "times",
    "repositories",
    "admission",
    "economy",
)
BY_NAME = ("packages",)
"""Those that need the network, so that only their names call them."""
"""Modules with ``async def measure(runs) -> list[Number]``, quickest first."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    print(f"machine: {', '.join(f'{name} {value}' for name, value in machine().items())}", flush=True)
    numbers: list[Number] = []
    failures: list[str] = []
    for name in options.names or NUMBERS:
        print(f"\n{name} …", flush=True)
        try:
            found = uvloop.run(import_module(f"tests.benchmarks.{name}").measure(options.runs))
        except Exception as error:  # noqa: BLE001 - one number that cannot be taken must not hide the others
            traceback.print_exc()
            failures.append(f"{name}: not measured: {type(error).__name__}: {error}")
            continue
        print(table(found), flush=True)
        numbers += found
    print(f"\nall numbers, median of {options.runs}:\n\n{table(numbers)}")
    for failure in failures:
        print(failure)
    if options.json:
        report = {"machine": machine(), "numbers": [each.to_dict() for each in numbers], "failures": failures}
        options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return 1 if failures else 0


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    except OSError:
        model = platform.processor()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 2),
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="The numbers the README quotes.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[*NUMBERS, *BY_NAME, []], help=f"of: {', '.join(NUMBERS)}"
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each; the median counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is stopped, too
    sys.exit(main())
