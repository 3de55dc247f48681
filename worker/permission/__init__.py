"""Permission requests of a run: what is asked, the wait for the answer, and its effect."""
