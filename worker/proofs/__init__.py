"""The checks of a proof, repeated on this machine."""
