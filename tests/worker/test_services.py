"""What all runs of a worker share: a volume that stalls, and what a worker closes when it fails."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path, PosixPath
from weakref import ref

import pytest

from deputize.shared.errors import WorkspaceLost
from deputize.shared.request import DelegationRequest
from deputize.shared.settings import SandboxSettings, Settings
from deputize.worker.sandbox.bounds import WorkerBounds
from deputize.worker.services import OPEN_MODELS
from deputize.worker.task import _prepared
from tests.runs.bench import Bench, say, script
from tests.waiting import until


class Stalled(PosixPath):
    """A directory on a volume that does not answer until it is released."""

    asked = threading.Event()
    released = threading.Event()

    def exists(self, **more: bool) -> bool:
        self.asked.set()
        if not self.released.wait(10):
            raise AssertionError("the event loop, which could release it, waits, too")
        return super().exists(**more)


async def test_a_volume_that_stalls_holds_up_a_run_and_not_the_event_loop(bench: Bench, tmp_path: Path) -> None:
    settings = bench.settings.model_copy(update={"workspace_root": Stalled(tmp_path)})
    claim = await bench.services.claim(await bench.accept(DelegationRequest(task="do it")))
    assert claim is not None
    later = replace(claim, history=[b"{}"] * 3)
    assert later.touched_files
    check_fence = bench.services.emitter(claim, print).check_fence
    stalled = replace(bench.services, settings=settings).workspace(later, None, 1000, print, check_fence)
    opening = asyncio.create_task(stalled)
    await until(Stalled.asked.is_set)
    Stalled.released.set()
    with pytest.raises(WorkspaceLost, match="not on this machine"):
        await opening


async def test_only_the_models_used_last_stay_open(bench: Bench, tmp_path: Path) -> None:
    """Each delegation may name another one, and a worker that kept them all would grow for ever."""
    model, names = bench.services.model, [script(tmp_path, [say(str(number))]) for number in range(OPEN_MODELS + 1)]
    kept, dropped = await model(names[0]), await model(names[1])
    for name in names[2:OPEN_MODELS]:
        await model(name)
    assert await model(names[0]) is kept
    await model(names[OPEN_MODELS])
    assert len(bench.services.models) == OPEN_MODELS
    assert await model(names[0]) is kept
    assert await model(names[1]) is not dropped


async def test_an_open_model_keeps_nothing_of_the_run_that_opened_it(bench: Bench) -> None:
    class Mark:
        """Something that only the context of a run refers to."""

    mark = Mark()
    is_there, variable = ref(mark), ContextVar[Mark | None]("mark", default=None)
    variable.set(mark)
    del mark
    await bench.services.model("scripted")
    variable.set(None)
    gc.collect()
    assert is_there() is None


class Closed(WorkerBounds):
    """Bounds that note how often they were closed."""

    times = 0

    def close(self) -> None:
        self.times += 1
        super().close()


@pytest.mark.parametrize("error", [None, RuntimeError("no service"), asyncio.CancelledError()])
async def test_the_bounds_of_all_runs_are_closed_however_a_worker_ends(
    error: BaseException | None, tmp_path: Path, redis_url: str
) -> None:
    made: list[Closed] = []

    def bounds_of(limits: SandboxSettings) -> Closed:
        made.append(Closed(limits))
        return made[0]

    async def work() -> None:
        async with _prepared(Settings(home=tmp_path), redis_url, bounds_of) as bounds:
            assert made == [bounds]
            if error:
                raise error

    ended = await asyncio.gather(work(), return_exceptions=True)
    assert [str(each) for each in ended if each] == [str(error)] * bool(error)
    assert [bounds.times for bounds in made] == [1]
