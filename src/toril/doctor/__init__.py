"""Checks of a storage and its queues: what is wrong, how much of it, and the way out."""
