"""What may be added to the unit tests in a file of Rust, so that those from before still count."""

from __future__ import annotations

import time

import pytest

from deputize.worker.verification.sources.kept_rust import added_tests

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
    "a test with comments in a comment": "    #[test]\n"
    "    fn three() { /* } /* } */ } */ assert_eq!(double(3), 6); }\n",
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
    "a comment over the old test": CODE
    + TESTS.replace("    #[test]", "    #[test] fn a_one() { /* /* */ }\n    #[test]")
    % '    #[test] fn a_two() { " */ } #[test] fn two() {} // " }\n',
    "a comment from the code on": CODE + "/*\n" + TESTS % '    #[test] fn a_two() { " */ #[test] fn two() {} // " }\n',
    "tests with blanks, and the old ones off": CODE
    + "#[ cfg(test) ]\nmod tests { #[ test ] fn two() {} }\n#[cfg(any())]\n"
    + TESTS % "",
    "tests by another name, and the old ones off": CODE
    + "#[cfg(not(any()))]\nmod tests { #[core::prelude::v1::test] fn two() {} }\n#[cfg(not(all()))]\n"
    + TESTS % "",
    "the old tests off": CODE + "#[cfg(any())]\n" + TESTS % "",
    "what is around the old tests off": CODE + "#[cfg(any())]\nmod more {\n" + TESTS % "" + "}\n",
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


def test_what_is_around_the_first_test_stays() -> None:
    old = OLD.replace("#[cfg(test)]\n", "")
    assert added_tests(old.encode(), old.replace("n * 3", "n * 2 /* mod */").encode()) == set()
    assert added_tests(old.encode(), old.replace("mod tests", "#[cfg(any())] mod tests").encode()) is None


@pytest.mark.parametrize(
    "piece",
    [
        "/*a",
        "/*",
        'r#"',
        '"\\',
        "#[test] fn a() {",
        "#[test] fn a(",
        "#[test]",
        "#[test] fn a{}() {{}}\n",
        "{{",
        "#[ ",
        "'",
    ],
)
def test_the_time_grows_with_the_length_of_a_file(piece: str) -> None:
    def computed(times: int) -> float:
        text = f"#[test] fn a() {{{''.join(piece.replace('{}', str(n)) for n in range(times))}"
        began = time.thread_time()
        added_tests(OLD.encode(), text.encode())
        added_tests(OLD.encode(), (text + "}" * text.count("{")).encode())
        return time.thread_time() - began

    assert min(computed(8_000) for _ in range(3)) < max(0.1, 10 * min(computed(2_000) for _ in range(3)))
