import sys
from pathlib import Path
import pytest
from tests.runs.bench import Bench, call, open_bench, say, script
from deputize.shared.events import CheckCompleted

async def test_thin(bench: Bench, tmp_path: Path):
    (tmp_path/"p").mkdir()
    (tmp_path/"p/a.txt").write_text("bad\n")
    m = script(tmp_path, [call("write_file", path="a.txt", content="good\n")], [say("done")])
    r = await bench.run(model=m, workspace=str(tmp_path/"p"), verify=[{"kind":"command","run":"grep good a.txt"}])
    print(r.verification, r.status)
    for e in await bench.seen(r, CheckCompleted): print(e)
    assert r.verification.verdict=="verified"
