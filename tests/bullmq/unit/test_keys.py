"""Keys: their names, one slot per queue, twins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toril.errors import InvalidOption, StorageError
from toril.ids import RESERVED_IDS
from toril.resp.cluster import slot_of
from toril.resp.url import parse_url
from toril.storage.bullmq import BullmqStorage
from toril.storage.bullmq.bulk import BullmqBulk
from toril.storage.bullmq.keys import (
    JOB_KEYS,
    OWN_KEYS,
    QUEUE_KEYS,
    check_twins,
    keys_of,
    queue_of,
    twins_of,
)

TAGGED = parse_url("bullmq+redis://localhost")
UNTAGGED = parse_url("bullmq+redis://localhost?hash_tag=off")


def test_keys_are_tagged_by_default_and_untagged_when_asked() -> None:
    assert keys_of(TAGGED, "emails").of("wait") == "bull:{emails}:wait"
    assert keys_of(UNTAGGED, "emails").of("wait") == "bull:emails:wait"
    named = parse_url("bullmq+redis://localhost?prefix=acme")
    assert keys_of(named, "emails").of("meta") == "acme:{emails}:meta"


@pytest.mark.parametrize("prefix", ["{bull}", "app:{bull}", "{a}b"])
def test_a_prefix_with_a_tag_tags_all_queues(prefix: str) -> None:
    address = parse_url(f"bullmq+redis+cluster://localhost?prefix={prefix}")
    assert keys_of(address, "emails").of("wait") == f"{prefix}:emails:wait"
    assert slot_of(keys_of(address, "emails").base) == slot_of(keys_of(address, "mail").of("wait"))
    assert queue_of(address, f"{prefix}:emails:meta") == "emails"
    assert queue_of(address, f"{prefix}:{{emails}}:meta") is None
    BullmqStorage(address)
    BullmqStorage(replace(address, hash_tag=False))


def test_names_may_have_braces_beside_a_prefix_that_has_them() -> None:
    address = parse_url("bullmq+redis://localhost?prefix={bull}&hash_tag=on")
    assert keys_of(address, "emails").base == "{bull}:{emails}:"
    assert queue_of(address, "{bull}:{emails}:meta") == "emails"
    assert queue_of(address, "{bull}:emails:meta") is None


def test_a_twin_in_braces_is_told_beside_a_prefix_that_has_them() -> None:
    address = parse_url("bullmq+redis://localhost?prefix={bull}")
    assert twins_of(address, "mail")[0] == "{bull}:{mail}:meta"
    with pytest.raises(StorageError, match=r"name the Node queue 'mail'.*hash_tag=on"):
        check_twins(address, "mail", other=True, lean=False)


@pytest.mark.parametrize("prefix", ["{", "}", "{}", "}a{", "{a", "a}", "{a}{b}", "{{a}}", "{a}}"])
def test_a_prefix_whose_braces_are_no_tag_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidOption, match=r"prefix.*one pair of braces"):
        BullmqStorage(f"bullmq+redis://localhost?prefix={prefix}")
    with pytest.raises(InvalidOption, match=r"prefix.*one pair of braces"):
        BullmqBulk(f"bullmq+redis://localhost?prefix={prefix}")


def test_braces_in_the_name_of_a_queue_are_left_alone() -> None:
    assert keys_of(TAGGED, "{emails}").base == "bull:{emails}:"
    assert keys_of(TAGGED, "{a}-b").base == "bull:{a}-b:"


@pytest.mark.parametrize("queue", ["myqueue", "größe", "{shop}-mail"])
def test_all_keys_of_a_queue_are_in_one_slot(queue: str) -> None:
    keys = keys_of(TAGGED, queue)
    names = [keys.of(name) for name in (*QUEUE_KEYS, *OWN_KEYS, "repeat:nightly", "de:k")]
    names += [keys.of("job-1") + suffix for suffix in JOB_KEYS]
    names += [keys.lock("j"), keys.logs("j"), keys.dedup("k"), keys.end("j"), keys.base]
    assert len({slot_of(name) for name in names}) == 1


def test_no_job_can_take_the_name_of_a_key_of_the_queue() -> None:
    assert {name for name in (*QUEUE_KEYS, *OWN_KEYS) if name.count(":") < 2} <= RESERVED_IDS


def test_the_name_of_a_queue_is_read_back_from_its_meta_key() -> None:
    assert queue_of(TAGGED, "bull:{emails}:meta") == "emails"
    assert queue_of(TAGGED, "bull:emails:meta") is None
    assert queue_of(UNTAGGED, "bull:emails:meta") == "emails"


def test_untagged_keys_are_refused_on_a_cluster() -> None:
    with pytest.raises(InvalidOption, match="CROSSSLOT"):
        BullmqStorage("bullmq+redis+cluster://localhost:7000?hash_tag=off")


def test_a_lean_url_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"bullmq\+redis"):
        BullmqStorage("redis://localhost")


def test_an_untagged_twin_is_told_with_both_remedies() -> None:
    assert twins_of(TAGGED, "mail") == ("bull:mail:meta", "{jq:mail}:meta")
    with pytest.raises(StorageError, match=r"name the Node queue '\{mail\}'.*hash_tag=off"):
        check_twins(TAGGED, "mail", other=True, lean=False)
    with pytest.raises(StorageError, match=r"toril's own layout.*without 'bullmq\+'"):
        check_twins(TAGGED, "mail", other=False, lean=True)
    check_twins(TAGGED, "mail", other=False, lean=False)
