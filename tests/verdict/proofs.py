"""Proofs of honest runs, to be proved again on another machine: `python -m tests.verdict.proofs FOLDER [--count N]`.

Each run makes ``NAME.json``, its proof, and ``NAME``, the repository with its base; ``key.pub`` has the public key. On
the other machine, which needs nothing else of this one:

    for proof in FOLDER/*.json; do deputize prove $proof --repository ${proof%.json} --key FOLDER/key.pub || echo $proof
    done
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deputize.shared.proof.file import Proof
from deputize.shared.proof.keys import make_key
from tests.network.git_server import git
from tests.runs.bench import Bench, script
from tests.verdict.cases import proof_of
from tests.verdict.strangers import DATA, Kits, Stranger, bench_with, strangers_in


def rows_without_kits() -> Sequence[Stranger]:
    """The honest rows whose checks need only what every machine with deputize has, each name once."""
    rows = {row.name: row for path in sorted(DATA.glob("honest-*.jsonl")) for row in strangers_in(path)}
    return [row for row in rows.values() if not any(kit in str(row.row) for kit in ("KIT/", "NODE/"))]


async def proved(bench: Bench, row: Stranger, folder: Path, kits: Kits) -> bool:
    """Carries a row out over a repository; whether its result has a proof, which is in the folder then."""
    project = folder / row.name
    with tempfile.TemporaryDirectory(prefix="deputize-") as place:
        fields = await asyncio.to_thread(row.fields, project, kits)
        if not (project / ".git").exists():
            for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "before")):
                await asyncio.to_thread(git, project, *words)
        fields["workspace"] = {"kind": "git", "url": str(project), "ref": git(project, "rev-parse", "HEAD")}
        result = await bench.run(model=script(Path(place), *row.turns), **fields)
    envelope = await proof_of(bench, result)
    if not envelope:
        print(f"no proof  {row.name}: {result.verification.verdict}", flush=True)
        shutil.rmtree(project)
        return False
    store = bench.services.store
    of_run = Proof.of(await store.get(result.delegation_id), await store.patch(result.delegation_id), envelope)
    (folder / f"{row.name}.json").write_text(of_run.model_dump_json(by_alias=True), "utf-8")
    print(f"proof     {row.name}", flush=True)
    return True


async def main(folder: Path, count: int) -> int:
    """Writes so many proofs into the folder; returns 1 if there are fewer."""
    folder.mkdir(parents=True)
    kits, made = Kits.installed(), 0
    async with bench_with(kits) as bench:
        public = make_key(bench.settings.proof_key_folder).with_suffix(".pub")
        shutil.copy(public, folder / "key.pub")
        for row in rows_without_kits():
            if made < count:
                made += await proved(bench, row, folder, kits)
    print(f"{made} proofs in {folder}")
    return int(made < count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.verdict.proofs", description="Proofs of honest runs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=100)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.folder, given.count)))
