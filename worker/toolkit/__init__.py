"""Which tools a run gets: all that a worker offers, where more come from, and what one run works with."""
