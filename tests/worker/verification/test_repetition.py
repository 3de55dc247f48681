"""What tests may hand on to each other, so that a failure in reverse is no evidence against a run."""

from __future__ import annotations

import pytest

from deputize.worker.verification.repetition import keeps_state

USED = {
    "a list of the module": "items = []\ndef test_it(): items.append(1)\n",
    "an object of the module": "shop = Shop()\ndef test_it(): assert shop.empty\n",
    "an attribute of the class": "class T:\n    seen: list = []\n    def test_it(self): assert not self.seen\n",
    "a global name": "count = 0\ndef test_it():\n    global count\n    count += 1\n",
    "set by another test": "class T:\n    def test_a(self): type(self).id = 3\n    def test_it(self): assert self.id\n",
    "set up once": "class T:\n    def setUpClass(cls): cls.db = make()\n    def test_it(self): self.db.close()\n",
    "a fixture of the module": "@pytest.fixture(scope='module')\ndef db(): yield 1\ndef test_it(db): assert db\n",
}
UNUSED = {
    "nothing": "def test_it(): assert total(3, 5) == 15\n",
    "a list of another test": "items = []\ndef test_a(): items.append(1)\ndef test_it(): assert total(3, 5) == 15\n",
    "a constant": "COUNT = 3\ndef test_it(): assert COUNT == 3\n",
    "a fixture of each test": "@pytest.fixture\ndef db(): yield 1\ndef test_it(db): assert db\n",
    "an attribute of its own": "class T:\n    def setUp(self): self.db = 1\n    def test_it(self): self.db.close()\n",
    "no Python": "def test_it(:\n",
}


@pytest.mark.parametrize("name", USED)
def test_what_another_test_may_have_changed_is_seen(name: str) -> None:
    assert keeps_state("test_a.py", USED[name], "T.test_it")


@pytest.mark.parametrize("name", UNUSED)
def test_what_no_other_test_changes_does_not_count(name: str) -> None:
    assert not keeps_state("test_a.py", UNUSED[name], "T.test_it")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("const items = [];\ntest('it', () => items.push(1));\n", True),
        ("describe('x', () => {\n  let db;\n  test('it', () => db.close());\n});\n", True),
        ("const items = [];\ntest('it', () => total(3));\ntest('b', () => items.push(1));\n", False),
        ("const { total } = require('./price');\ntest('it', () => total(3));\n", False),
        ("const LIMIT = 3;\ntest('it', () => total(LIMIT));\n", False),
    ],
)
def test_the_same_holds_in_javascript(text: str, kept: bool) -> None:
    assert keeps_state("a.test.js", text, "it") == kept


def test_nothing_is_known_of_other_languages() -> None:
    assert not keeps_state("a_test.go", "var items []int\nfunc TestIt(t *testing.T) { items = nil }\n", "TestIt")
