"""Ask sentinels where the master is.

The questions are a generator, so that the asynchronous and the blocking client share them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from toril.errors import StorageDenied, StorageError
from toril.resp.replies import Lost, ServerSaid
from toril.resp.url import Address
from toril.resp.wire import Answer, Endpoint, pack

Question = tuple[Endpoint, Address, bytes]


def ask_sentinels(address: Address) -> Generator[Question, Answer | StorageError, Endpoint]:
    """Ask one sentinel after the other; give the master, or raise `Lost` with all their reasons.

    Most sentinels have no password; those that have one share the master's, as far as a URL can
    say. So each is asked without a login first.
    """
    question = pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.master or "")
    nameless = replace(address, db=0, username=None, password=None, credentials=None)
    reasons: list[str] = []
    for host, port in address.hosts:
        endpoint = Endpoint(host, port)
        answer = yield endpoint, nameless, question
        if _wants_login(answer):
            answer = yield endpoint, replace(address, db=0), question
        match answer:
            case [bytes() as name, bytes() as number]:
                return Endpoint(name.decode(), int(number))
            case ServerSaid():
                reasons.append(f"{endpoint}: {answer.text}")
            case Lost():
                reasons.append(f"{endpoint}: {answer}")
            case StorageError():
                reasons.append(str(answer))
            case _:
                reasons.append(f"{endpoint} knows no master '{address.master}'")
    raise Lost("no sentinel knows the master (" + "; ".join(reasons) + ")")


def _wants_login(answer: Answer | StorageError) -> bool:
    if isinstance(answer, ServerSaid):
        return answer.code in ("NOAUTH", "NOPERM")
    return isinstance(answer, StorageDenied)
