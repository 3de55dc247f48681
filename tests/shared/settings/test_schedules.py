"""The tables ``schedules.NAME``: when their times are, also where clocks change, and that a wrong one is named."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings
from deputize.shared.settings.schedules import ScheduleSettings

WHOLE = """
[schedules.nightly]
cron = "0 3 * * *"
zone = "Europe/Berlin"
task = "Update the dependencies"
overlap = "queue"
pause_after = 2
request = {labels = {team = "web"}}
"""


def loaded(folder: Path, text: str) -> Settings:
    config = folder / "deputize.toml"
    config.write_text(text)
    return Settings.load(config, environ={})


def test_a_table_has_all_that_a_schedule_is(tmp_path: Path) -> None:
    settings = loaded(tmp_path, WHOLE)
    table = settings.schedules["nightly"]
    assert (table.overlap, table.pause_after, table.request) == ("queue", 2, {"labels": {"team": "web"}})
    passed = settings.child_environment()["DEPUTIZE_SCHEDULES"]
    assert Settings.load(environ={"DEPUTIZE_SCHEDULES": passed}).schedules == settings.schedules


@pytest.mark.parametrize(
    ("cron", "after", "times"),
    [
        ("30 2 * * *", "2026-03-28T12:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        ("30 2 * * *", "2026-10-24T12:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("0 */2 * * *", "2026-10-25T00:30", ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"]),
        ("*/10 * * * * *", "2026-11-01T00:00:05", ["2026-11-01T00:00:10+01:00", "2026-11-01T00:00:20+01:00"]),
        ("0 9 * * MON#1", "2026-11-01T00:00", ["2026-11-02T09:00:00+01:00", "2026-12-07T09:00:00+01:00"]),
    ],
)
def test_times_are_those_of_the_zone_also_where_clocks_change(cron: str, after: str, times: list[str]) -> None:
    zone = ZoneInfo("Europe/Berlin")
    table = ScheduleSettings(cron=cron, zone="Europe/Berlin", task="t")
    moment, found = int(datetime.fromisoformat(after).replace(tzinfo=zone).timestamp()), list[str]()
    for _ in times:
        moment = table.next_after(moment) or 0
        found.append(datetime.fromtimestamp(moment, zone).isoformat())
    assert found == times


def test_a_time_of_the_repeated_hour_comes_once(tmp_path: Path) -> None:
    table = ScheduleSettings(cron="30 2 * * *", zone="Europe/Berlin", task="t")
    repeated = int(datetime.fromisoformat("2026-10-25T02:10:00+01:00").timestamp())
    assert table.next_after(repeated) == int(datetime.fromisoformat("2026-10-26T02:30:00+01:00").timestamp())


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('cron = "60 * * * *"', "is not a cron expression (bad minute)"),
        ('cron = "@daily"', "is not a cron expression (wrong number of fields)"),
        ('cron = "0 0 30 2 *"', "is not a cron expression (bad day-of-month)"),
        ('cron = "0 0 */40 2 MON#5"', "is a time that never comes"),
        ('cron = ""', "schedules/nightly/cron"),
        ('zone = "Mars/Base"', "there is no time zone 'Mars/Base'"),
        ('zone = "/etc/passwd"', "there is no time zone"),
        ('overlap = "both"', "schedules/nightly/overlap"),
        ("pause_after = -1", "schedules/nightly/pause_after"),
        ("request = {idempotencyKey = 'x'}", "idempotency_key is not a field of this table"),
    ],
)
def test_a_wrong_table_is_refused_with_its_name(tmp_path: Path, line: str, wrong: str) -> None:
    name = line.partition(" = ")[0]
    kept = [each for each in WHOLE.splitlines() if each.partition(" = ")[0] != name]
    with pytest.raises(Misconfigured) as refusal:
        loaded(tmp_path, "\n".join([*kept, line]))
    assert "schedules/nightly" in str(refusal.value)
    assert wrong in str(refusal.value)


def test_the_name_of_a_schedule_is_plain(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be the name of a table"):
        loaded(tmp_path, WHOLE.replace("nightly", '"a b"'))
