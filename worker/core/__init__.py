"""The turns of a run. They import the contracts of tools, models and other packages, never their code."""
