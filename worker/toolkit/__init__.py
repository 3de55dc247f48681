"""The selection of a run's tools: the registry, tool sources, and the opened tools of one run."""
