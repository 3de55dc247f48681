"""The delegations that a run hands over itself, and how it waits for them."""
