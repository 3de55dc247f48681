"""The run's files: its own copy of them, how they are reached and changed, and what became of them."""
