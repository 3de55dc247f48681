"""The claims of a run's summary, compared with its steps and file changes."""

from .judgement import Work, claims

__all__ = ["Work", "claims"]
