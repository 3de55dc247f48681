"""JSON Schemas of strangers: bounded when they are declared, and judged in processes that can be stopped."""
