"""`python -m deputize.worker.policy`: answers questions about the policy, a line of JSON each, until its input ends."""

from __future__ import annotations

import json
import sys

from .explanation import answer


def main() -> int:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
