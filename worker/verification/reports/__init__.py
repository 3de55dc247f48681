"""What runners of tests report about each test, and how it reaches the worker."""
