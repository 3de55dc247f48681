"""Web access of tools: allowed addresses, fetching and converting pages, and search providers."""
