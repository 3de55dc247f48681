"""The model below the translation is asked at an endpoint, as every model is."""

from tests.worker.models.conftest import fake

__all__ = ["fake"]
