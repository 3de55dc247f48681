"""The figures of an evaluation as one page without scripts and without other files."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ...shared.text import count
from .evaluation import FIGURES, Comparison, Evaluation
from .statistics import Interval

_HEAD = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Evaluation</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
:root { color-scheme: light dark }
table { border-collapse: collapse; width: 100% }
th, td { padding: .3rem .6rem; text-align: left; border-bottom: 1px solid #8884 }
.bar { position: relative; height: .6rem; min-width: 10rem; background: #8883 }
.bar i, .bar b { position: absolute; height: 100%; background: #3a7bd566 }
.bar b { width: 3px; background: #3a7bd5 }
</style>
"""


def page(evaluation: Evaluation, compared: Comparison | None) -> str:
    """Returns the page. All untrusted texts are escaped."""
    figures = [(name, *evaluation.figure(name)) for name in FIGURES.values()]
    rows = [[escape(name), f"{value:.1%}", _bar(value, interval)] for name, value, interval in figures]
    tasks = [
        [str(each.number), escape(each.title), f"{each.successes} of {len(each.ended)}", _bar(each.rate, each.interval)]
        + [_links(result.delegation_id, result.headline) for result in each.ended[:1]]
        for each in evaluation.tasks
    ]
    ends = [[escape(end), str(number)] for end, number in evaluation.ends.items()]
    parts = [
        f"<h1>Evaluation of {count(len(evaluation.tasks), 'task')}, k = {evaluation.k}</h1>",
        _table(("figure", "value", "95 %"), rows),
        f"<p>{escape(compared.conclusion)}</p>" if compared else "",
        "<h2>Tasks</h2>",
        _table(("task", "title", "success", "95 %", "first run"), tasks),
        "<h2>Ends</h2>",
        _table(("end", "runs"), ends),
    ]
    return _HEAD + "\n".join(parts) + "\n</html>\n"


def _links(id: str, headline: str) -> str:
    return f"<code>{escape(id)}</code> {escape(headline)}"


def _bar(value: float, interval: Interval) -> str:
    low, high = interval
    words = f"{low:.0%} to {high:.0%}"
    inner = f'<i style="left:{low:.1%};width:{high - low:.1%}"></i><b style="left:{value:.1%}"></b>'
    return f'<div class="bar" aria-hidden="true">{inner}</div>{words}'


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = "".join(f"<th>{each}</th>" for each in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return f"<table><tr>{heads}</tr>\n{lines}</table>"
