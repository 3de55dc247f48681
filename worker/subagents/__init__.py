"""Child delegations of a run, and how it waits for them."""
