"""The Celery integration: the pool on the event loop, its jobs, and the worker process around them."""
