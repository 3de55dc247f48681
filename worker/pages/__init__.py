"""Text files as an answer shows them: as much as it has room for, with line numbers."""
