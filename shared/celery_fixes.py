"""What kombu 5.7.0, Celery's messaging, does wrong on Redis: one method per fix.

``tests/shared/test_celery_fixes.py`` fails as soon as a fix is not needed any more.
"""

from __future__ import annotations

from typing import Any

import redis.exceptions
from kombu.transport import redis as kombu_redis

from shared.log import log


class SafeChannel(kombu_redis.Channel):
    """Keeps a worker alive whatever Redis and its queue do, and makes no new client for every command."""

    _client: Any = None

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        """Has a worker connect again after a restart of Redis.

        Its consumer closes a broken connection twice. The second time the channel has lost its connection and answers
        with an AttributeError, which ends the worker, where a ConnectionError makes it connect again.
        """
        if self.connection is None or self.connection.client is None:
            raise redis.exceptions.ConnectionError("the connection to Redis was closed")
        return super()._connparams(asynchronous)

    def _brpop_read(self, **options: Any) -> Any:
        """Drops an entry that is no ticket: whoever can write to the queue could end every worker with one."""
        try:
            return super()._brpop_read(**options)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning("an entry of the queue is no ticket and is dropped", extra={"cause": repr(error)[:300]})
            return True

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Keeps the client: it is only a face of its pool, but redis-py takes longer to make one than to use it."""
        if asynchronous:
            return super()._create_client(asynchronous)
        if self._client is None or self._client.connection_pool is not self.pool:
            self._client = super()._create_client()
        return self._client
