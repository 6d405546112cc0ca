"""Jobs in BullMQ queues, beside Node's workers and producers.

What a job's life does to the keys is done by the official scripts, unmodified. Our own Lua does
what they do not: answer by elimination where they search, check the lock where they trust,
merge where they overwrite. `keys.py` names the keys, `codec.py` the fields, `codes.py` the
refusals, `scripts.py` the order of keys and arguments.
"""

from __future__ import annotations

from toril.storage.bullmq.awaits import AwaitClaims
from toril.storage.bullmq.edits import EditJobs
from toril.storage.bullmq.heart import Hearts
from toril.storage.bullmq.notes import SetLimits, WriteNotes
from toril.storage.bullmq.observe import Observe
from toril.storage.bullmq.tend import Tend


class BullmqStorage(AwaitClaims, Observe, Tend, EditJobs, WriteNotes, SetLimits, Hearts):
    """BullMQ 5.62 on a Redis or Valkey server, alone, behind sentinels or as a cluster."""
