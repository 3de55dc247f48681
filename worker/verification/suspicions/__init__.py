"""Changes that may bend a check."""
