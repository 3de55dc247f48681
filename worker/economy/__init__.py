"""Economy: turns of runs go through the Message Batches API, at half the price."""
