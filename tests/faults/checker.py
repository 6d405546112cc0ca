"""Judge a history and a final dump by the invariants of `reliability.md`, section 3.

Pure functions: histories in, violations out. What is unknown (`info`) may have happened or not;
the rules allow both worlds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.faults.dump import TERMINAL, Dump, JobView, Step
from tests.faults.history import Happening

_ENDS = frozenset({"stalled", "completed", "failed", "retrying", "added"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken promise."""

    rule: str
    job: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule} {self.job}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is judged, and under which rules.

    `drained`: every job must have ended. `lossy`: the server was made to forget. `ordered`: one
    worker, one job at a time, no priorities.
    """

    history: Sequence[Happening]
    dump: Dump
    max_stalls: int = 1
    drained: bool = True
    lossy: bool = False
    ordered: bool = False

    def of(self, op: str, *phases: str) -> list[Happening]:
        """Pick the happenings of an operation, in the order of time."""
        found = [one for one in self.history if one.op == op and one.phase in phases]
        return sorted(found, key=lambda one: one.t_mono)


def check(case: Case) -> list[Violation]:
    """Apply every rule."""
    rules = (
        acked_jobs_are_there,
        nothing_is_there_twice,
        one_commit_per_lease,
        only_the_owner_commits,
        a_lost_owner_writes_nothing,
        attempts_are_bounded,
        each_job_is_in_one_place,
        starts_follow_the_line,
        owners_do_not_overlap,
    )
    return [violation for rule in rules for violation in rule(case)]


def acked_jobs_are_there(case: Case) -> Iterator[Violation]:
    """I1: what was acknowledged has ended, once, or is still there."""
    if case.lossy:
        return
    labels = {job.label: job for job in case.dump.jobs}
    removed = {one.job for one in case.of("cancel", "ok", "info")}
    for one in case.of("enqueue", "ok"):
        assert one.job is not None
        job = labels.get(one.job)
        if one.job in removed:
            continue
        if job is None:
            yield Violation(rule="I1", job=one.job, text=f"acked to {one.proc}, now nowhere")
        elif case.drained and job.state not in TERMINAL:
            yield Violation(rule="I1", job=one.job, text=f"never ended; it is {job.state}")


def nothing_is_there_twice(case: Case) -> Iterator[Violation]:
    """I2: a refused enqueue left nothing; any other made one job at most."""
    counted = Counter(job.label for job in case.dump.jobs)
    for label, number in counted.items():
        if number > 1:
            yield Violation(rule="I2", job=label, text=f"{number} jobs of one enqueue")
    tried = {one.job for one in case.of("enqueue", "ok", "info")}
    for one in case.of("enqueue", "fail"):
        if one.job is not None and counted[one.job] and one.job not in tried:
            yield Violation(rule="I2", job=one.job, text="its enqueue was refused, yet it exists")


def one_commit_per_lease(case: Case) -> Iterator[Violation]:
    """I3, as workers saw it: one commit per token, one completion per job."""
    commits = case.of("commit", "ok")
    for (job, token), number in Counter((one.job, one.token) for one in commits).items():
        if number > 1:
            yield Violation(rule="I3", job=str(job), text=f"{number} commits under {token}")
    for job_id, tokens in _completions(commits).items():
        if len(tokens) > 1:
            yield Violation(rule="I3", job=job_id, text=f"completed under {sorted(tokens)}")
        result = _token_in(case.dump.by_id.get(job_id))
        if result is not None and result not in tokens:
            text = f"completed under {sorted(tokens)}, but the result is that of {result}"
            yield Violation(rule="I3", job=job_id, text=text)


def _completions(commits: Sequence[Happening]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for one in commits:
        if one.data.get("kind") == "completed" and one.job is not None:
            found[one.job].add(str(one.token))
    return found


def _token_in(job: JobView | None) -> str | None:
    """The lease a result was made under; our handlers return it."""
    if job is None or not isinstance(job.result, dict):
        return None
    token = job.result.get("token")
    return None if token is None else str(token)


def only_the_owner_commits(case: Case) -> Iterator[Violation]:
    """I3, as the server saw it: an attempt is ended by the worker that was granted it."""
    for job, steps in _trails(case).items():
        owner: str | None = None
        ended = False
        stalled = False
        for step in steps:
            if step.kind == "added":
                owner, ended = None, False
            elif step.kind == "active":
                owner, stalled = _holder(case, step), False
            elif step.kind == "stalled":
                owner, stalled = None, True
            elif step.kind in ("completed", "failed", "retrying"):
                # By the storage itself: stalled too often, or a record nobody can read.
                nobody = case.dump.names_workers and step.worker is None
                doomed = step.kind == "failed" and (stalled or nobody)
                if ended:
                    text = f"{step.kind} at {step.seq}, after its end"
                    yield Violation(rule="I3", job=job, text=text)
                elif owner is None and not doomed:
                    text = f"{step.kind} at {step.seq} by {step.worker}, who did not hold it"
                    yield Violation(rule="I3", job=job, text=text)
                elif owner is not None and owner != _holder(case, step):
                    text = f"{step.kind} at {step.seq} by {step.worker}, held by {owner}"
                    yield Violation(rule="I3", job=job, text=text)
                owner = None
                ended = step.kind != "retrying"
            elif step.prev == "active":
                owner = None


def _holder(case: Case, step: Step) -> str | None:
    """Who did it; where the trail names nobody, that somebody did is all that can be judged."""
    return step.worker if case.dump.names_workers else "somebody"


def a_lost_owner_writes_nothing(case: Case) -> Iterator[Violation]:
    """I4: after a worker learnt that its lease is lost, nothing of that run is recorded."""
    lost: dict[tuple[str, str], float] = {}
    for one in case.of("lost", "ok", "info"):
        lost.setdefault((str(one.job), str(one.token)), one.t_mono)
    writes = [*case.of("commit", "ok"), *case.of("progress", "ok")]
    for one in writes:
        at = lost.get((str(one.job), str(one.token)))
        if at is not None and at < one.t_mono:
            text = f"{one.op} recorded {one.t_mono - at:.3f} s after {one.token} was lost"
            yield Violation(rule="I4", job=str(one.job), text=text)
    for job, token in lost:
        if _token_in(case.dump.by_id.get(job)) == token:
            text = f"the result is that of {token}, which was lost"
            yield Violation(rule="I4", job=job, text=text)


def attempts_are_bounded(case: Case) -> Iterator[Violation]:
    """I5: failures <= attempts, stalls <= max_stalls + 1, executions <= their sum."""
    starts = Counter(one.job for one in case.of("run", "invoke"))
    for job, steps in _trails(case).items():
        view = case.dump.by_id.get(job)
        if view is None or sum(step.kind == "added" for step in steps) > 1:
            continue
        doomed = sum(one.kind == "failed" and _after_stall(steps, one) for one in steps)
        failures = sum(one.kind in ("failed", "retrying") for one in steps) - doomed
        if not case.dump.tells_retries:
            failures = view.made
        stalls = sum(step.kind == "stalled" for step in steps)
        most = view.attempts + case.max_stalls + _releases(case, view, steps)
        if failures > view.attempts:
            text = f"failed {failures} times, {view.attempts} attempts allowed"
            yield Violation(rule="I5", job=job, text=text)
        if stalls > case.max_stalls + 1:
            text = f"stalled {stalls} times, {case.max_stalls} allowed"
            yield Violation(rule="I5", job=job, text=text)
        if starts[job] > most:
            yield Violation(rule="I5", job=job, text=f"ran {starts[job]} times, {most} allowed")
    if not case.dump.trail:
        for view in case.dump.jobs:
            if view.stalls > case.max_stalls + 1:
                text = f"stalled {view.stalls} times, {case.max_stalls} allowed"
                yield Violation(rule="I5", job=view.label, text=text)


def _after_stall(steps: Sequence[Step], failed: Step) -> bool:
    at = steps.index(failed)
    return at > 0 and steps[at - 1].kind == "stalled"


def _releases(case: Case, view: JobView, steps: Sequence[Step]) -> int:
    """Count the times a job was handed back without counting as an attempt."""
    back = [
        steps[at - 1].kind
        for at, step in enumerate(steps)
        if at and step.prev == "active" and step.kind in ("waiting", "delayed")
    ]
    if not case.dump.tells_retries:
        # Of those that came back, all but the stalled and the retried ones.
        retries = view.made - (view.state in TERMINAL)
        return len(back) - sum(step.kind == "stalled" for step in steps) - retries
    return sum(kind not in ("stalled", "retrying") for kind in back)


def each_job_is_in_one_place(case: Case) -> Iterator[Violation]:
    """I6: every record is in the one container of its state, and the other way round."""
    for job in case.dump.jobs:
        if list(job.places) != [job.state]:
            text = f"is {job.state} and lies in {list(job.places) or 'no container'}"
            yield Violation(rule="I6", job=job.label, text=text)
    for orphan in case.dump.orphans:
        name, _, text = orphan.partition(": ")
        yield Violation(rule="I6", job=name, text=text)


def starts_follow_the_line(case: Case) -> Iterator[Violation]:
    """I7: jobs start in the order they were acked, per producer, but for those run again."""
    if not case.ordered:
        return
    first: dict[str, float] = {}
    for one in case.of("run", "invoke"):
        first.setdefault(str(one.job), one.t_mono)
    excused = {job.id for job in case.dump.jobs if job.stalls or job.made > 1 or job.started > 1}
    newest: dict[str, tuple[float, str]] = {}
    for one in case.of("enqueue", "ok"):
        job = str(one.job)
        if job in excused or job not in first:
            continue
        at, before = newest.get(one.proc, (0.0, ""))
        if first[job] < at:
            yield Violation(rule="I7", job=job, text=f"started before {before}, acked after it")
        else:
            newest[one.proc] = (first[job], job)


def owners_do_not_overlap(case: Case) -> Iterator[Violation]:
    """I8: two runs of a job overlap only where the earlier owner's lease had lapsed."""
    for job, steps in _trails(case).items():
        owner: str | None = None
        for step in steps:
            if step.kind == "active":
                if owner is not None:
                    text = f"granted to {step.worker} at {step.seq} while {owner} held it"
                    yield Violation(rule="I8", job=job, text=text)
                owner = _holder(case, step)
            elif step.kind in _ENDS or step.prev == "active":
                owner = None
    if case.lossy:
        return
    stalls = Counter(step.job for step in case.dump.trail if step.kind == "stalled")
    for job, number in _overlaps(case).items():
        if number > stalls[job]:
            text = f"{number} overlapping runs, {stalls[job]} lapsed leases"
            yield Violation(rule="I8", job=job, text=text)


def _overlaps(case: Case) -> Counter[str]:
    """Count runs that began while an earlier one of the same job was known to go on."""
    ends = {(one.job, one.token): one.t_mono for one in case.of("run", "ok", "fail")}
    runs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in case.of("run", "invoke"):
        # A run without an end died at a time nobody wrote down; it overlaps with nothing.
        runs[str(one.job)].append((one.t_mono, ends.get((one.job, one.token), one.t_mono)))
    found: Counter[str] = Counter()
    for job, spans in runs.items():
        for at, (begin, _) in enumerate(spans):
            found[job] += any(end > begin for _, end in spans[:at])
    return +found


def _trails(case: Case) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = defaultdict(list)
    if case.dump.whole_trail:
        for step in sorted(case.dump.trail, key=lambda one: one.seq):
            if step.job is not None:
                found[step.job].append(step)
    return found
