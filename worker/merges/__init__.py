"""Runs that merge the results of others, and find out which of them fail the checks together."""
