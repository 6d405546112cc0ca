"""Flows of data between queues and tables: ingest, archive, replay, export."""
