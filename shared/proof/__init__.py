"""The proof of a verified result: a signed statement of what the worker saw, which others can check."""
