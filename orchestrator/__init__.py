"""Accepts delegations, dispatches them to workers and reports their progress. Never runs a tool."""
