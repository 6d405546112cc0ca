"""What the steps of the machine choose from."""

from __future__ import annotations

from hypothesis import strategies as st

from toril.job import Dedup, Terms

KEYS = st.sampled_from(
    [Dedup("k1"), Dedup("k1", ttl=3), Dedup("k2", ttl=9), Dedup("k2", replace=True)]
)
DEDUPS = st.one_of(st.none(), KEYS)
TERMS = st.builds(
    Terms,
    delay_ms=st.sampled_from([0, 0, 0, 500, 3_000]),
    priority=st.sampled_from([0, 0, 1, 2]),
    lifo=st.sampled_from([False, False, False, True]),
    attempts=st.integers(1, 3),
    dedup=DEDUPS,
    result_ttl_ms=st.sampled_from([None, None, 2_500]),
)
PICK = st.integers(0, 255)
BATCH = st.lists(
    st.tuples(st.one_of(st.none(), PICK), TERMS, st.booleans()), min_size=2, max_size=5
)
WORKER = st.integers(0, 2)
COUNT = st.integers(1, 3)
LOSE = st.sampled_from([False, False, True])
KINDS = st.sampled_from(["complete", "fail", "retry", "retry later", "postpone", "release"])
