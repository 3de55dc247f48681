"""The files that decide what a check does: what its command lines name, and what is protected from the run."""
