"""The table of parts: capabilities that some runs have, and the core does not know."""
