"""The instructions of a project, AGENTS.md and its like: which files count, and what a run's model reads of them."""
