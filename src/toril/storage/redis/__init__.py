"""Jobs on Redis or Valkey in a lean layout of our own."""

from toril.storage.redis.storage import RedisStorage

__all__ = ["RedisStorage"]
