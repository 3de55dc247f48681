"""The turns of a run. They import the contracts of tools, models and the other rooms, never the rooms."""
