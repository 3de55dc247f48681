"""Text files in a tool's output: with line numbers, limited in size."""
