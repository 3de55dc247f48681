"""Child delegations of a run: what each has from its parent, and their lives."""
