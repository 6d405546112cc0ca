"""Speak to Redis and Valkey: URLs, connections, scripts, cluster, a blocking twin."""
