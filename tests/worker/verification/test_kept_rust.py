"""What may be added to the unit tests in a file of Rust, so that those from before still count."""

from __future__ import annotations

import pytest

from deputize.worker.verification.kept_rust import added_tests

CODE = "pub fn double(n: i32) -> i32 { n * 3 }\n\n"
FIXED = CODE.replace("3", "2")
TESTS = "#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn two() { assert_eq!(double(2), 4); }\n%s}\n"
OLD = CODE + TESTS % ""
ADDED = {
    "nothing": "",
    "a test": "    #[test]\n    fn three() { assert_eq!(double(3), 6); }\n",
    "a test with braces in its texts": '    #[test] fn three() { assert_eq!(f("}", \'}\', r#"}"}"#), /* } */ 6); // }\n'
    "    }\n",
    "a test with attributes": '    #[test]\n    #[should_panic(expected = "x")]\n    fn three() { double(-1); }\n',
    "a test with a lifetime": "    #[test]\n"
    '    fn three() { fn first<\'a>(s: &\'a str) -> &\'a str { s } assert_eq!(first("{"), "{"); }\n',
    "an asynchronous test": "    #[tokio::test]\n    async fn three() { assert_eq!(later(3).await, 6); }\n",
}
CHANGED = {
    "another expectation": OLD.replace("double(2), 4", "double(2), 6"),
    "a test less": OLD.replace("#[test]", ""),
    "a test that is ignored": OLD.replace("#[test]", "#[test] #[ignore]"),
    "another macro": CODE + TESTS % "    macro_rules! assert_eq { ($($t:tt)*) => {} }\n",
    "a macro inside of a test": CODE + TESTS % "    #[test] fn three() { macro_rules! assert_eq { () => {} } }\n",
    "an answer to comparisons": CODE + TESTS % "    #[test] fn three() { impl PartialEq<i32> for N {} }\n",
    "an import": OLD.replace("use super::*;", "use super::*; use fake::assert_eq;"),
    "a function that the tests call": CODE + TESTS % "    #[cfg(test)] fn double(n: i32) -> i32 { 4 }\n",
    "a symbol": CODE + TESTS % "    #[test] #[no_mangle] fn abort() {}\n",
    "a helper of no test": CODE + TESTS % "    fn helper() {}\n",
    "a body without an end": CODE + TESTS % "    #[test] fn three() { {\n",
    "bytes": "\udcff" + OLD,
}


@pytest.mark.parametrize("name", ADDED)
def test_whole_tests_may_be_added(name: str) -> None:
    found = added_tests(OLD.encode(), (FIXED + TESTS % ADDED[name]).encode())
    assert found == ({"three"} if ADDED[name] else set())


def test_functions_for_tests_may_be_added_to_the_code() -> None:
    seeded = "#[cfg(test)]\npub fn seeded(n: i32) -> i32 { double(n) }\n\n"
    assert added_tests(OLD.encode(), (FIXED + seeded + TESTS % "").encode()) == {"seeded"}
    assert added_tests(CODE.encode(), FIXED.encode()) == set()


@pytest.mark.parametrize("name", CHANGED)
def test_all_else_may_change_what_the_tests_are(name: str) -> None:
    assert added_tests(OLD.encode(), CHANGED[name].encode("utf-8", "surrogateescape")) is None
