"""The runners of tests that are known, and one execution of a check's command."""
