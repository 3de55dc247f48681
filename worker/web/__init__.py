"""The web as tools reach it: what may be dialled, how pages are fetched and read, who is asked to search."""
