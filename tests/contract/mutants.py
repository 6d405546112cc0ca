"""Break the memory storage on purpose, one promise at a time.

A suite that cannot fail proves nothing: `test_mutants.py` shows that the named checks turn
red on each of these and are green without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from toril.event import Cursor, Event, EventKind
from toril.ids import token
from toril.job import FINISHED, JobSpec, State
from toril.outcome import DONE, GONE, LOST, Answer, Lease, Outcome
from toril.storage.memory import MemoryStorage
from toril.storage.memory_entry import Entry, Lines
from toril.storage.memory_log import EventLog, Extras
from toril.storage.memory_queue import MemoryQueue
from toril.storage.protocol import (
    Batch,
    Cancellation,
    Claim,
    Feature,
    Reaped,
    Receipt,
    Renewal,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One broken method, and the checks that must notice."""

    name: str
    target: type
    method: str
    broken: Callable[..., object] | property
    caught_by: tuple[str, ...]


MUTANTS: list[Mutant] = []


def mutant(
    target: type, method: str, *caught_by: str
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Enter a broken method under its own name."""

    def enter(broken: Callable[..., object]) -> Callable[..., object]:
        name = broken.__name__
        entry = Mutant(name=name, target=target, method=method, broken=broken, caught_by=caught_by)
        MUTANTS.append(entry)
        return broken

    return enter


# The originals, taken before anything is patched.
_append = EventLog.append
_read = EventLog.read
_cancel = MemoryQueue.cancel
_claim = MemoryQueue.claim
_claimable_in = MemoryQueue.claimable_in
_enqueue = MemoryQueue.enqueue
_enter = Lines.enter
_expire = MemoryQueue._expire
_line_up = MemoryQueue._line_up
_reap = MemoryQueue.reap
_renew = MemoryQueue.renew
_settle = MemoryQueue.settle
_shelf = MemoryStorage._queue


# -- ownership ---------------------------------------------------------------------------------


@mutant(
    Entry,
    "owned_by",
    "a_wrong_token_settles_nothing",
    "settling_under_a_lost_lease_changes_nothing",
    "the_new_owner_settles_after_the_old_one_was_refused",
    "a_lost_owner_writes_neither_progress_nor_logs",
    "renew_reports_the_leases_that_are_gone",
)
def the_token_is_not_compared(self: Entry, lease: Lease) -> bool:
    return self.state is State.ACTIVE


@mutant(Entry, "owned_by", "an_old_attempt_does_not_end_a_new_one_under_the_same_token")
def the_token_is_compared_but_not_the_attempt(self: Entry, lease: Lease) -> bool:
    return self.state is State.ACTIVE and self.token == lease.token


@mutant(MemoryQueue, "note_progress", "a_lost_owner_writes_neither_progress_nor_logs")
def a_lost_owner_writes_progress(
    self: MemoryQueue, lease: Lease, progress: bytes, now: int
) -> Answer:
    entry = self.jobs[lease.job_id]
    entry.progress = progress
    return DONE if entry.owned_by(lease) else LOST


@mutant(
    MemoryQueue,
    "settle",
    "completed_and_failed_attempts_count",
    "one_settle_takes_many_outcomes_and_answers_in_order",
    "the_new_owner_settles_after_the_old_one_was_refused",
)
def settle_answers_before_it_writes(self: MemoryQueue, outcome: Outcome, now: int) -> Answer:
    entry = self.find(outcome.lease.job_id, now)
    if entry is not None and entry.owned_by(outcome.lease):
        return DONE
    return _settle(self, outcome, now)


@mutant(
    MemoryQueue,
    "settle",
    "a_repeated_completion_is_recognised",
    "a_repeated_failure_is_recognised",
    "a_repeated_retry_is_recognised",
    "a_repeated_postponement_is_recognised",
    "a_repeated_release_is_recognised",
    "a_repeated_settle_is_recognised_after_another_worker_took_the_job",
    "a_lost_reply_to_a_settle_with_refill_costs_nothing",
)
def a_repeated_settle_is_called_lost(self: MemoryQueue, outcome: Outcome, now: int) -> Answer:
    entry = self.find(outcome.lease.job_id, now)
    if entry is not None and not entry.owned_by(outcome.lease):
        return LOST
    return _settle(self, outcome, now)


@mutant(MemoryQueue, "settle", "a_settle_of_a_job_that_is_gone_is_told_so")
def a_job_that_is_gone_is_called_lost(self: MemoryQueue, outcome: Outcome, now: int) -> Answer:
    answer = _settle(self, outcome, now)
    return LOST if answer == GONE else answer


@mutant(
    MemoryQueue,
    "renew",
    "a_renewed_lease_outlives_its_first_term",
    "a_renewal_whose_reply_was_lost_holds",
)
def renew_does_not_prolong(
    self: MemoryQueue, leases: list[Lease], lease_ms: int, now: int
) -> Renewal:
    until = {job_id: entry.lease_until_ms for job_id, entry in self.jobs.items()}
    answer = _renew(self, leases, lease_ms, now)
    for job_id, entry in self.jobs.items():
        entry.lease_until_ms = until[job_id]
    return answer


@mutant(
    MemoryQueue,
    "renew",
    "cancel_of_a_running_job_reaches_its_owner_at_the_next_renewal",
)
def renew_keeps_cancellations_to_itself(
    self: MemoryQueue, leases: list[Lease], lease_ms: int, now: int
) -> Renewal:
    return Renewal(lost=_renew(self, leases, lease_ms, now).lost)


# -- events ------------------------------------------------------------------------------------


@mutant(
    EventLog,
    "append",
    "every_finished_job_has_exactly_one_event_of_its_end",
    "the_life_of_a_job_is_told_in_order",
)
def the_event_of_a_completion_is_lost(
    self: EventLog,
    kind: EventKind,
    time_ms: int,
    job_id: str | None = None,
    job_name: str | None = None,
    attempt: int | None = None,
    worker_id: str | None = None,
    extras: Extras = (),
) -> None:
    if kind is not EventKind.COMPLETED:
        _append(self, kind, time_ms, job_id, job_name, attempt, worker_id, extras)


@mutant(
    MemoryQueue,
    "_complete",
    "a_change_and_its_event_are_one_step",
    "every_finished_job_has_exactly_one_event_of_its_end",
)
def a_completion_is_told_without_the_change(
    self: MemoryQueue, entry: Entry, result: bytes, now: int
) -> None:
    self._tell(EventKind.COMPLETED, entry, now)


@mutant(
    EventLog,
    "read",
    "a_read_of_trimmed_events_raises_and_tells_how_many_are_gone",
    "a_range_that_was_trimmed_away_whole_is_not_called_empty",
)
def trimmed_events_are_passed_over_in_silence(
    self: EventLog, after: Cursor, until: Cursor | None, limit: int
) -> list[Event]:
    oldest = Cursor(self.dropped)
    return _read(self, max(after, oldest), until, limit)


@mutant(EventLog, "read", "a_range_of_events_includes_its_end_and_not_its_start")
def the_end_of_a_range_of_events_is_left_out(
    self: EventLog, after: Cursor, until: Cursor | None, limit: int
) -> list[Event]:
    return [event for event in _read(self, after, until, limit) if event.cursor != until]


# -- order -------------------------------------------------------------------------------------


@mutant(
    Lines,
    "take",
    "jobs_are_handed_out_in_the_order_they_came",
    "a_thousand_jobs_go_through_in_order",
)
def the_newest_job_goes_first(self: Lines) -> Entry | None:
    return self.waiting.popitem(last=True)[1] if self.waiting else None


@mutant(Lines, "take", "concurrent_claims_never_share_a_job", "a_live_lease_is_exclusive")
def a_job_is_handed_out_twice(self: Lines) -> Entry | None:
    return next(iter(self.waiting.values()), None)


@mutant(
    Lines,
    "enter",
    "no_priority_goes_first_then_one_is_the_most_urgent",
    "peek_shows_the_next_to_run_first",
)
def priorities_are_reversed(
    self: Lines, entry: Entry, *, front: bool = False, ignore_priority: bool = False
) -> None:
    spec = entry.spec
    if spec.terms.priority:
        turned = replace(spec.terms, priority=2_097_152 - spec.terms.priority)
        entry.spec = replace(spec, terms=turned)
    _enter(self, entry, front=front, ignore_priority=ignore_priority)
    entry.spec = spec


@mutant(
    MemoryQueue,
    "_line_up",
    "a_released_job_goes_to_the_front_of_the_line",
    "a_stalled_job_goes_to_the_front_of_the_line",
    "a_job_given_back_to_a_paused_queue_waits_for_the_resume",
)
def a_released_job_goes_to_the_back(
    self: MemoryQueue,
    entry: Entry,
    now: int,
    delay_ms: int,
    *,
    front: bool,
    ignore_priority: bool = False,
) -> None:
    _line_up(self, entry, now, delay_ms, front=False, ignore_priority=ignore_priority)


@mutant(
    Lines,
    "take_due",
    "a_delayed_job_is_not_handed_out_before_its_time",
    "a_retry_with_a_delay_waits_for_its_time",
)
def a_delayed_job_starts_early(self: Lines, now: int) -> Entry | None:
    entry = self._first_delayed()
    if entry is not None:
        self.leave(entry)
    return entry


@mutant(MemoryQueue, "pause", "a_paused_queue_hands_out_nothing")
def a_pause_is_told_and_ignored(self: MemoryQueue, paused: bool, now: int) -> None:
    self.log.append(EventKind.PAUSED if paused else EventKind.RESUMED, now)


@mutant(
    MemoryQueue,
    "claim",
    "a_repeated_claim_brings_the_same_jobs_and_no_others",
    "a_lost_reply_to_a_claim_costs_neither_an_attempt_nor_a_stall",
    "a_lost_reply_to_a_settle_with_refill_costs_nothing",
)
def a_repeated_claim_grants_other_jobs(self: MemoryQueue, claim: Claim, now: int) -> Batch:
    return _claim(self, replace(claim, token=token()), now)


@mutant(
    MemoryQueue,
    "claimable_in",
    "wait_is_not_late_for_a_delayed_job",
    "wait_learns_of_a_delayed_job_that_is_due_earlier",
)
def wait_forgets_the_delayed(self: MemoryQueue, now: int) -> int | None:
    return _claimable_in(self, now) if self._lines.ready else None


# -- results and ids ---------------------------------------------------------------------------


@mutant(
    MemoryQueue,
    "_expire",
    "a_result_is_readable_for_its_keep_time_and_gone_after",
    "the_keep_time_runs_from_the_end_of_the_job",
)
def results_go_before_their_time(self: MemoryQueue, entry: Entry, expires_ms: int | None) -> None:
    _expire(self, entry, None if expires_ms is None else expires_ms - 10_000)


@mutant(MemoryQueue, "keep", "keep_never_touches_another_job")
def one_keep_time_is_given_to_all(
    self: MemoryQueue, job_id: str, keep_ms: int | None, now: int
) -> bool:
    for entry in self.jobs.values():
        if entry.state in FINISHED:
            _expire(self, entry, None if keep_ms is None else now + keep_ms)
    return job_id in self.jobs


@mutant(
    MemoryQueue,
    "enqueue",
    "a_taken_id_is_not_created_again_and_its_payload_stays",
    "one_id_twice_in_a_batch_is_one_job",
)
def a_duplicate_overwrites_the_payload(self: MemoryQueue, spec: JobSpec, now: int) -> Receipt:
    receipt = _enqueue(self, spec, now)
    self.jobs[spec.id].spec = spec
    return receipt


@mutant(
    MemoryQueue,
    "enqueue",
    "an_enqueue_repeated_after_a_lost_reply_says_created_and_makes_one_job",
    "a_repeated_enqueue_is_recognised_after_the_job_has_started",
)
def a_repeated_enqueue_is_called_a_duplicate(self: MemoryQueue, spec: JobSpec, now: int) -> Receipt:
    return _enqueue(self, replace(spec, origin=""), now)


@mutant(
    MemoryQueue,
    "cancel",
    "cancel_of_a_waiting_job_takes_it_out_of_the_line",
    "the_id_of_a_cancelled_job_is_free_and_its_old_place_is_gone",
)
def a_cancelled_job_stays_in_line(
    self: MemoryQueue, job_id: str, running: bool, now: int
) -> Cancellation:
    entry = self.jobs.get(job_id)
    answer = _cancel(self, job_id, running, now)
    if entry is not None and answer is Cancellation.CANCELLED:
        self._lines.enter(entry)
        self.jobs[job_id] = entry
    return answer


@mutant(
    MemoryQueue,
    "_release_key",
    "a_dedup_key_is_held_while_its_job_runs_and_free_when_it_ends",
    "a_dedup_key_is_free_when_its_job_is_cancelled_or_removed",
)
def a_dedup_key_is_never_released(self: MemoryQueue, entry: Entry) -> None:
    return None


# -- stalls ------------------------------------------------------------------------------------


@mutant(MemoryQueue, "reap", "a_stall_counts_apart_from_attempts")
def a_stall_costs_an_attempt(
    self: MemoryQueue, max_stalls: int, interval_ms: int, now: int
) -> Reaped:
    reaped = _reap(self, max_stalls, interval_ms, now)
    for job_id in reaped.stalled:
        self.jobs[job_id].made += 1
    return reaped


@mutant(
    MemoryQueue,
    "reap",
    "a_job_that_stalls_too_often_fails_without_running_again",
    "no_stall_is_forgiven_where_none_is_allowed",
)
def a_job_may_stall_for_ever(
    self: MemoryQueue, max_stalls: int, interval_ms: int, now: int
) -> Reaped:
    return _reap(self, 1_000_000, interval_ms, now)


@mutant(
    MemoryQueue,
    "reap",
    "only_one_caller_reaps_per_interval_and_the_others_learn_when",
)
def every_caller_reaps(self: MemoryQueue, max_stalls: int, interval_ms: int, now: int) -> Reaped:
    self._reaped_ms = None
    return _reap(self, max_stalls, interval_ms, now)


@mutant(MemoryQueue, "reap", "a_live_lease_is_exclusive")
def live_leases_are_reaped(
    self: MemoryQueue, max_stalls: int, interval_ms: int, now: int
) -> Reaped:
    for entry in self.jobs.values():
        entry.lease_until_ms = 0
    return _reap(self, max_stalls, interval_ms, now)


@mutant(
    MemoryQueue,
    "reap",
    "a_lapsed_lease_makes_the_job_claimable_again",
    "a_crashed_worker_loses_no_job",
)
def nobody_reaps(self: MemoryQueue, max_stalls: int, interval_ms: int, now: int) -> Reaped:
    return Reaped(next_in_ms=interval_ms)


# -- the whole storage -------------------------------------------------------------------------


@mutant(
    MemoryStorage,
    "_ring",
    "wait_is_woken_by_a_new_job_in_any_of_its_queues",
    "wait_is_woken_when_the_queue_is_resumed",
    "a_cancelled_wait_does_not_swallow_the_wake_up_of_another",
    "a_blocked_read_is_woken_by_the_next_event",
    "finished_waits_for_an_ending",
    "the_last_close_ends_blocked_calls",
)
def nobody_is_woken(self: MemoryStorage, wakers: object) -> None:
    return None


@mutant(MemoryStorage, "_queue", "two_queues_do_not_see_each_other")
def all_queues_are_one(self: MemoryStorage, name: str) -> MemoryQueue:
    return _shelf(self, "one")


def _no_features(_self: MemoryStorage) -> frozenset[Feature]:
    return frozenset()


MUTANTS.append(
    Mutant(
        name="options_it_lacks_are_ignored_in_silence",
        target=MemoryStorage,
        method="features",
        broken=property(_no_features),
        caught_by=("an_option_the_storage_lacks_is_refused_and_nothing_is_stored",),
    )
)
