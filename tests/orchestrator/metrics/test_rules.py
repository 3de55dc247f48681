"""The dashboard and the alerts: each metric that they name is reported, with the labels that they use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from deputize.orchestrator.metrics import exposition as module
from deputize.orchestrator.metrics.exposition import STATE
from deputize.shared.metrics import COUNTED, Metric
from tests.architecture.sources import ROOT

FOLDER = Path(module.__file__ or "").parent
METRICS: list[Metric] = [*COUNTED, *STATE]
SERIES = {
    f"{metric.name}{part}": {*metric.labels} | ({"le"} if part == "_bucket" else set())
    for metric in METRICS
    for part in (("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",))
}
OF_OTHERS = {"worker", "le"}


def panels() -> list[dict[str, Any]]:
    return json.loads((FOLDER / "dashboard.json").read_text("utf-8"))["panels"]


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"]
    return group["rules"]


EXPRESSIONS = [target["expr"] for panel in panels() for target in panel["targets"]] + [each["expr"] for each in rules()]
TEXTS = [target["legendFormat"] for panel in panels() for target in panel["targets"]]
TEXTS += [each["annotations"]["summary"] for each in rules() if "alert" in each]


def test_every_name_is_a_metric() -> None:
    named = {name for expression in EXPRESSIONS for name in re.findall(r"\bdeputize_\w+", expression)}
    assert named <= SERIES.keys()


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    assert [metric.name for metric in METRICS if metric.name not in shown] == []


def test_every_label_is_one_of_a_metric_in_its_expression() -> None:
    for expression in EXPRESSIONS:
        labels = {label for name in re.findall(r"\bdeputize_\w+", expression) for label in SERIES[name]}
        used = {each.strip() for by in re.findall(r"\bby \(([^)]*)\)", expression) for each in by.split(",")}
        used |= set(re.findall(r"[{,](\w+)=", expression))
        assert used <= labels, expression


def test_texts_use_only_labels_that_are_left() -> None:
    for panel in panels():
        for target in panel["targets"]:
            left = {each.strip() for by in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for each in by.split(",")}
            assert {*re.findall(r"{{(\w+)}}", target["legendFormat"])} <= left, target["legendFormat"]
    assert {*re.findall(r"\$labels\.(\w+)", " ".join(TEXTS))} == {"worker"}


def test_values_of_labels_are_known() -> None:
    """Those of statuses, reasons and kinds; a misspelt one would match nothing."""
    known = {value for metric in METRICS for values in metric.begins_with for value in values}
    known |= {"input", "output", "cache_read", "cache_write"}
    used = [value for expression in EXPRESSIONS for value in re.findall(r'\w+=~?"([^"]*)"', expression)]
    assert {each for value in used for each in value.split("|")} <= known


def test_panels_and_alerts_have_names_of_their_own() -> None:
    assert len({panel["id"] for panel in panels()}) == len({panel["title"] for panel in panels()}) == len(panels())
    alerts = [each["alert"] for each in rules() if "alert" in each]
    assert len({*alerts}) == len(alerts) > 5


def test_every_metric_is_documented() -> None:
    text = (ROOT / "orchestrator" / "metrics" / "README.md").read_text("utf-8")
    named = re.findall(r"^\| `(deputize_\w+)`", text, re.MULTILINE)
    assert named == [metric.name for metric in METRICS]
