"""Fixes for defects of kombu 5.7.0, Celery's messaging library, on Redis: one method per fix.

``tests/shared/test_celery_fixes.py`` fails as soon as a fix is not needed any more.
"""

from __future__ import annotations

from typing import Any

import redis.exceptions
from kombu.transport import redis as kombu_redis

from .log import log


class SafeChannel(kombu_redis.Channel):
    """Keeps a worker alive through Redis restarts and invalid queue entries, and reuses its client."""

    _client: Any = None

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        """Lets a worker reconnect after a restart of Redis.

        Its consumer closes a broken connection twice. The second time the channel has no connection any more and
        raises AttributeError, which ends the worker; a ConnectionError makes it reconnect.
        """
        if self.connection is None or self.connection.client is None:
            raise redis.exceptions.ConnectionError("the connection to Redis was closed")
        return super()._connparams(asynchronous)

    def _brpop_read(self, **options: Any) -> Any:
        """Drops an entry that is not a ticket: anyone with write access to the queue could end every worker."""
        try:
            return super()._brpop_read(**options)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning("an entry of the queue is not a ticket and is dropped", extra={"cause": repr(error)[:300]})
            return True

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Reuses the client: redis-py takes longer to create one than to use it, and the pool is shared anyway."""
        if asynchronous:
            return super()._create_client(asynchronous)
        if self._client is None or self._client.connection_pool is not self.pool:
            self._client = super()._create_client()
        return self._client
