"""Tests that the run wrote itself: which they are, and when they are evidence."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from deputize.worker.verification.own_tests import judged_by_own, own_tests
from deputize.worker.verification.reports.states import Place, Report
from deputize.worker.verification.runners.execution import Observed
from deputize.worker.verification.sources.broken_sources import broken_functions
from deputize.worker.verification.sources.functions_before import functions_in, source_of, with_functions_before
from deputize.worker.verification.suspicions.scan import in_own_tests
from deputize.worker.verification.verdict import Judgement
from tests.runs.bench import Bench
from tests.verdict.cases import FIXED, Case, check, unit
from tests.verdict.own_tests import GREEN, NET


def values(text: str | None, *expressions: str) -> list[Any]:
    """Returns what expressions are in a module; the kind of error where one is raised."""
    assert text is not None
    module: dict[str, Any] = {"__name__": "module"}
    exec(compile(text, "module.py", "exec"), module)
    found = list[Any]()
    for expression in expressions:
        try:
            found.append(eval(expression, module))
        except (TypeError, AttributeError) as error:
            found.append(type(error))
    return found


def before(old: str, new: str) -> str | None:
    return with_functions_before(dedent(old), dedent(new))


def test_a_function_does_what_it_did_and_all_else_is_as_the_run_left_it() -> None:
    old = """\
        from math import floor
        LIMIT = 1
        OLD = 7
        def total(a): return floor(a) + helper()
        def helper(): return OLD
        class Cart:
            def size(self): return 1
            def gone(self): return 2
        """
    new = """\
        '''Words.'''
        from __future__ import annotations
        LIMIT = 2
        def total(a: Number): return a * 2
        class Cart:
            KIND = "new"
            def size(self): return 5
        """
    text = before(old, new)
    assert values(text, "total(3.5)", "LIMIT", "OLD", "Cart().size()", "Cart().gone()", "Cart.KIND") == [
        *(10, 2, 7, 1, 2, "new")
    ]


def test_a_new_function_answers_with_what_nothing_expects() -> None:
    new = """\
        import contextlib
        def total(a): return a
        def even(a): return a % 2 == 0
        async def later(): return 1
        def each(): yield 1
        @contextlib.contextmanager
        def opened(): yield 1
        class Cart:
            def __init__(self): self.rows = []
            @property
            def size(self): return len(self.rows)
            @size.setter
            def size(self, value): self.rows = [0] * value
        """
    text = before("def total(a): return a\n", new)
    found = values(
        text, "total(2)", "bool(even(2))", "even(2) == even(2)", "list(each())", "Cart().size == 0", "Cart().rows"
    )
    assert found == [2, False, False, TypeError, False, AttributeError]
    assert values(text, "opened().__enter__()") == [TypeError]


def test_both_parts_of_a_property_are_put_back() -> None:
    text = """\
        class Cart:
            @property
            def size(self): return self.{name}
            @size.setter
            def size(self, value): self.{name} = {value}
        def made():
            cart = Cart()
            cart.size = 2
            return cart.size
        """
    found = before(text.format(name="_a", value="value"), text.format(name="_b", value="value + 1"))
    assert values(found, "made()") == [2]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f(): return 1\n", "RATE = 2\ndef f(): return 1\n"),
        ("def f(): return 1\n", "# words\ndef f():\n    return 1\n"),
        ("RATE = 1\n", "RATE = 2\nclass Kind: WIDE = 1\n"),
        ("def f(): return 1\n", "def f(: return 1\n"),
        ("def f(: return 1\n", "def f(): return 2\n"),
    ],
)
def test_without_a_function_that_differs_there_is_nothing_to_put_back(old: str, new: str) -> None:
    assert with_functions_before(old, new) is None


def test_functions_of_a_file_that_was_moved_are_known() -> None:
    old = {text: functions_in(text).keys() for text in ("def a(): 1\ndef b(): 2\n", "def a(): 1\n", "def c(): 3\n")}
    assert source_of("def b(): 2\ndef a(): 1\ndef d(): 4\n", old) == "def a(): 1\ndef b(): 2\n"
    assert (source_of("def d(): 4\n", old), source_of("def d(): 4\n", {}), functions_in("def (")) == ("", "", {})


@pytest.mark.parametrize(
    ("path", "old", "new", "found"),
    [
        ("a.js", "", "export function sum(a) { return a; }\n", r"\{return \[\"\w+\"\]; return a; \}\n$"),
        ("a.rb", "", "def sum(a)\n  a\nend\n", r"def sum\(a\); return \"\w+\"\n"),
        ("a.go", "", "func Sum(a int) int { return a }\n", r"\{panic\(\"\w+\"\); return a \}|\{panic"),
        ("a.js", "const A = 1;\n", "const A = 2;\n", None),
        ("a.js", "", "\udcff", None),
    ],
)
def test_functions_of_other_languages_are_broken_and_nothing_else(
    path: str, old: str, new: str, found: str | None
) -> None:
    content = broken_functions(path, old.encode(), new.encode("utf-8", "surrogateescape"))
    assert (content is None) is (found is None)
    if content is not None and found is not None:
        assert re.search(found, content.decode())


def report(
    states: dict[str, Any], unread: tuple[str, ...] = (), file: str | None = "/workspace/tests/test_a.py"
) -> Report:
    places = {id: Place(file, "test") for id in states} if file is not None else {}
    places |= {id: Place(id, "") for id in unread}
    return Report({**states, **dict.fromkeys(unread, "failed")}, places)


def test_a_test_is_the_runs_own_where_it_was_not_there_and_stands_in_a_changed_file() -> None:
    base, now = report({"old": "failed"}), report({"old": "passed", "new": "passed", "red": "failed"})
    assert own_tests(base, now, ["tests/test_a.py"]) == {"new"}
    assert own_tests(base, now, ["tests/test_b.py"]) == set()
    assert own_tests(base, report({"new": "passed"}, file=None), ["tests/test_a.py"]) == set()
    unplaced = report({"pkg::Test": "passed"}, file="")
    assert own_tests(base, unplaced, []) == {"pkg::Test"}
    assert own_tests(report({}, ("pkg",)), unplaced, []) == set()  # a package that could not be built had tests, too


FILE = "/workspace/tests/test_a.py"
GONE = Observed("red", 1, report=None)


def state_of(id: str, base: Observed, on_before: str, again: str = "passed") -> Judgement:
    seen = [Observed("red", 1, report=report({id: state})) for state in (on_before, again)]
    return judged_by_own(Judgement("no_regression", "as before", {"fixed": set()}), {id}, base, *seen)


@pytest.mark.parametrize(
    ("base", "on_before", "again", "outcome"),
    [
        (report({"a": "failed"}), "failed", "passed", "evidence"),
        (report({}, (FILE,)), "failed", "passed", "evidence"),
        (report({}, ("/workspace/tests/test_b.py",)), "failed", "passed", "no_regression"),
        (report({}), "failed", "passed", "no_regression"),
        (report({"a": "passed"}), "failed", "passed", "no_regression"),
        (report({"a": "skipped"}), "failed", "passed", "no_regression"),
        (report({"a": "failed"}), "passed", "passed", "no_regression"),
        (report({"a": "failed"}), "skipped", "passed", "no_regression"),
        (report({"a": "failed"}), "failed", "failed", "no_regression"),
        (None, "failed", "passed", "no_regression"),
    ],
)
def test_an_own_test_is_evidence_where_it_fails_for_what_functions_did(
    base: Report | None, on_before: str, again: str, outcome: str
) -> None:
    judgement = state_of("a", Observed("red", 1, report=base), on_before, again)
    assert (judgement.outcome, judgement.own) == (outcome, outcome == "evidence")
    assert judgement.tests["fixed"] == ({"a"} if judgement.own else set())


def test_code_that_cannot_be_compiled_without_the_change_is_red_on_the_base() -> None:
    seen = [Observed("red", 1, report=report({"a": state}, file="")) for state in ("failed", "passed")]
    assert judged_by_own(Judgement("no_regression", ""), {"a"}, GONE, *seen).outcome == "evidence"
    assert judged_by_own(Judgement("no_regression", ""), {"a"}, Observed("green", 0), *seen).outcome == "no_regression"


@pytest.mark.parametrize(
    "line",
    [
        "assert 'x' in inspect.getsource(price.total)",
        "assert price.total.__code__.co_consts == (1,)",
        "assert open('price.py').read()",
        "assert (ROOT / 'src/price.py').read_text()",
        'assert os.path.exists("src/marks.py")',
        "assert Path(price.__file__).stat().st_size > 10",
        "subprocess.run(['git', 'diff'])",
        "os.system('git status')",
        "assert os.environ['PYTEST_CURRENT_TEST']",
        "assert sys._getframe(1)",
    ],
)
def test_a_test_that_looks_at_more_than_what_the_code_does_is_suspicious(line: str) -> None:
    text = f"import os, sys\n\ndef test():\n    {line}\n"
    assert [(each.line, each.kind) for each in in_own_tests("tests/test_a.py", "", text)] in (
        [(4, "caller")],
        [(4, "tested")],
    )
    assert in_own_tests("tests/test_a.py", text, text) == []


@pytest.mark.parametrize(
    "line",
    [
        "DATA = Path(__file__).parent / 'data'",
        "assert json.loads((tmp_path / 'out.json').read_text()) == {}",
        "subprocess.run([sys.executable, 'tool.py', '1'], check=True)",
        "with pytest.raises(SystemExit): price.main([])",
        "assert mock.call_args == ANY and sorted(os.listdir(tmp_path)) == ['a.txt']",
        "monkeypatch.setenv('HOME', str(tmp_path))",
        "assert price.digital('legit', open(tmp_path / 'a').read())",
    ],
)
def test_what_tests_are_made_of_is_not_suspicious(line: str) -> None:
    assert in_own_tests("tests/test_a.py", "", f"import os\nimport pytest\n\ndef test():\n    {line}\n") == []


OWN = unit("price", "def test_net(self): self.assertEqual(price.net(200, 10), 180)")
LOOKS = unit("price, os", "def test_net(self): assert os.path.exists('NEWS') and price.total(3, 5) == 15")


@pytest.mark.parametrize(
    ("does", "verdict"),
    [
        ({"price.py": NET, "tests/test_own.py": OWN}, "verified"),
        ({"price.py": FIXED + "\n", "NEWS": "x\n", "tests/test_own.py": LOOKS}, "passed"),
    ],
)
async def test_a_feature_is_verified_by_its_own_tests_and_says_so(
    bench: Bench, tmp_path: Path, does: dict[str, str], verdict: str
) -> None:
    found = (await Case("own", does, [check("python3 -m unittest -q")], GREEN).run(bench, tmp_path)).verification
    (seen,) = found.checks
    assert (found.verdict, seen.own_tests) == (verdict, verdict == "verified"), found
    assert seen.tests.get("fixed", []) == (["tests.test_own.Test.test_net"] if seen.own_tests else [])
