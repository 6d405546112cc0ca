"""Jobs in BullMQ queues, shared with Node."""

from toril.storage.bullmq.storage import BullmqStorage

__all__ = ["BullmqStorage"]
