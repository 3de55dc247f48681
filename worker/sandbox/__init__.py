"""Where commands run: one place each, walled off, after which nothing of it is left."""
