"""Talk to the same servers from a thread without an event loop."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final

from toril.errors import StorageClosed, StorageDenied, StorageError, StorageUnavailable
from toril.resp.cluster import SlotMap, read_slots, slot_of
from toril.resp.errand import unreached
from toril.resp.greet import Settings, hurried, tls_context
from toril.resp.replies import (
    Argument,
    Lost,
    Redirect,
    Refusal,
    Reload,
    Reply,
    ServerSaid,
    Stale,
    Wait,
    is_transaction,
    judge,
    refusal,
    shown,
    trouble_in,
    worth_repeating,
)
from toril.resp.script import Script, shas_of
from toril.resp.sentinel import ask_sentinels
from toril.resp.syncwire import SyncWire
from toril.resp.url import Address
from toril.resp.wire import ASKING, Answer, Endpoint, Ghost, pack

_LONGEST_PAUSE_S: Final = 0.5


class SyncClient:
    """The blocking twin of `Client`: one connection per node, made at the first call.

    Calls from several threads take turns. After a fork the child makes its own connections.
    """

    def __init__(self, address: Address, settings: Settings | None = None) -> None:
        self.address = address
        self.settings = Settings.of(address, settings)
        self._context = tls_context(address)
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._pid = os.getpid()
        self._wires: dict[Endpoint, SyncWire] = {}
        self._ghosts: dict[Endpoint, list[Ghost]] = {}
        self._map = SlotMap()
        self._master: Endpoint | None = None
        self._scripts: dict[str, Script] = {}

    def __repr__(self) -> str:
        return f"SyncClient({self.address.safe!r})"

    def call(self, key: str, *args: Argument) -> Reply:
        """Send one command; `key` only chooses the node of a cluster."""
        return self._one(key, args)

    def exists(self, key: str) -> bool:
        """Tell whether there is a key; one that an ACL hides is not there for us."""
        try:
            return bool(self.call(key, "EXISTS", key))
        except StorageDenied:
            return False

    def run(self, script: Script, key: str, *args: Argument) -> Reply:
        """Run a script with one key; a server that does not know it gets it first."""
        self._scripts[script.sha] = script
        return self._one(key, ("EVALSHA", script.sha, 1, key, *args))

    def learn(self, *scripts: Script) -> None:
        """Make scripts known, so that an EVALSHA inside a pipeline can be loaded again."""
        self._scripts.update((script.sha, script) for script in scripts)

    def pipeline(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Reply | Exception]:
        """Send commands together; give their replies or errors in order.

        What can be waited out is repeated, for a MULTI … EXEC as a whole. Raises only when the
        server cannot be reached.
        """
        trip = _Trip(self, key)
        with self._turn:
            answers = trip.deliver(commands)
        return [shown(answer, trip.where) for answer in answers]

    def pick_nodes(self) -> list[Endpoint]:
        """Name every node that holds keys, for `call_at`."""
        self._one("", ("PING",))  # waits for a server, and in a cluster reads the map
        return self._map.masters if self.address.kind == "cluster" else [self.find("")]

    def call_at(self, node: Endpoint, *args: Argument) -> Reply:
        """Send one command to a node, whatever its keys are."""
        return self._one("", args, node)

    def close(self) -> None:
        """Close the connections, also under a call of another thread."""
        self._closed.set()
        for wire in list(self._wires.values()):
            wire.close()

    def _one(self, key: str, args: Sequence[Argument], pinned: Endpoint | None = None) -> Reply:
        trip = _Trip(self, key, pinned)
        with self._turn:
            (answer,) = trip.deliver([args])
        if isinstance(answer, ServerSaid):
            raise refusal(answer, trip.where)
        assert not isinstance(answer, Lost)
        return answer

    def find(self, key: str) -> Endpoint:
        """Choose the server for a key; raise `Lost` while none is known."""
        match self.address.kind:
            case "cluster":
                return self._map.find(slot_of(key)) or self._read_map(slot_of(key))
            case "sentinel":
                if self._master is None:
                    self._master = self._find_master()
                return self._master
            case _:
                host, port = self.address.hosts[0] if self.address.hosts else ("", 0)
                return Endpoint(host, port, self.address.path)

    def wire(self, endpoint: Endpoint) -> SyncWire:
        """Give the connection to a server, made now if need be."""
        if self._closed.is_set():
            raise StorageClosed(f"client of {self.address.safe} was closed")
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._wires.clear()
        wire = self._wires.get(endpoint)
        if wire is None:
            wire = self._wires[endpoint] = SyncWire.dial(
                endpoint,
                self.address,
                self.settings,
                self._context,
                self._ghosts.get(endpoint, []),
                master=self.address.kind == "sentinel",
            )
            self._ghosts.pop(endpoint, None)
        return wire

    def lost(self, endpoint: Endpoint, wire: SyncWire | None) -> None:
        """Forget a broken connection, remember to kill it, and look for the master anew."""
        self._master = None
        self._map = SlotMap()
        if wire is not None:
            self._wires.pop(endpoint, None)
            wire.close()
            if wire.ghost is not None:
                self._ghosts.setdefault(endpoint, []).append(wire.ghost)

    def moved(self, to: Redirect, asked: Endpoint) -> Endpoint:
        """Follow a redirection; a MOVED is remembered."""
        endpoint = Endpoint(to.host or asked.host, to.port)
        if not to.ask:
            self._map.move(to.slot, endpoint)
        return endpoint

    def known(self, shas: Iterable[str]) -> list[Script]:
        """Give those of the scripts that were used here before."""
        return [self._scripts[sha] for sha in shas if sha in self._scripts]

    def pause(self, seconds: float) -> None:
        """Sleep, unless the client is closed meanwhile."""
        self._closed.wait(seconds)

    def _find_master(self) -> Endpoint:
        steps = ask_sentinels(self.address)
        try:
            endpoint, address, question = next(steps)
            while True:
                answer: Answer | StorageError
                try:
                    wire = SyncWire.dial(endpoint, address, hurried(self.settings), self._context)
                    try:
                        (answer,) = wire.exchange([question])
                    finally:
                        wire.close()
                except (Lost, StorageError) as error:
                    answer = error
                endpoint, address, question = steps.send(answer)
        except StopIteration as end:
            found: Endpoint = end.value
            return found

    def _read_map(self, slot: int) -> Endpoint:
        reasons: list[str] = []
        known = [endpoint for endpoint in self._wires if endpoint not in self._map.masters]
        seeds = [Endpoint(host, port) for host, port in self.address.hosts]
        for endpoint in dict.fromkeys([*known, *seeds]):
            try:
                (reply,) = self.wire(endpoint).exchange([pack("CLUSTER", "SLOTS")])
                self._map = read_slots(reply, endpoint)
            except Lost as lost:
                self.lost(endpoint, self._wires.get(endpoint))
                reasons.append(f"{endpoint}: {lost}")
            else:
                break
        found = self._map.find(slot)
        if found is None:
            raise Lost("; ".join(reasons) or "no node serves this slot")
        return found


class _Trip:
    """One call under way, as `Errand` is for the asynchronous client."""

    def __init__(self, client: SyncClient, key: str, pinned: Endpoint | None = None) -> None:
        self._client = client
        self._key = key
        self._pinned = pinned
        self._settings = client.settings
        self._deadline: float | None = None
        self._pause = 0.02
        self._delay = self._settings.first_delay
        self._tries = 0
        self._sent = False
        self._asked: Endpoint | None = None
        self._endpoint: Endpoint | None = None

    @property
    def where(self) -> str:
        """The server as messages name it."""
        return str(self._endpoint or self._client.address.safe)

    def deliver(self, commands: Sequence[Sequence[Argument]]) -> list[Answer]:
        """Send commands until every one has an answer that is worth no repeat."""
        packed = [pack(*command) for command in commands]
        whole = is_transaction(commands)
        answers: list[Answer] = [None] * len(packed)
        todo = list(range(len(packed)))
        while todo:
            fresh = self._exchange([packed[at] for at in todo])
            for at, answer in zip(todo, fresh, strict=True):
                answers[at] = answer
            again = [at for at in todo if worth_repeating(answers[at])]
            if not again:
                break
            todo = todo if whole else again
            trouble = trouble_in(answers[again[0]])
            try:
                self._recover(trouble, shas_of(commands[at] for at in todo))
            except StorageError:
                if isinstance(trouble, Lost):
                    raise
                break
        return answers

    def _exchange(self, packed: list[bytes]) -> list[Answer]:
        wire: SyncWire | None = None
        asked, self._asked = self._asked, None
        try:
            self._endpoint = asked or self._pinned or self._client.find(self._key)
            wire = self._client.wire(self._endpoint)
            self._sent = True
            if asked is None:
                return wire.exchange(packed)
            return wire.exchange([part for one in packed for part in (ASKING, one)])[1::2]
        except Lost as lost:
            self._tries += wire is None
            if self._endpoint is not None:
                self._client.lost(self._endpoint, wire)
            return [lost] * len(packed)

    def _recover(self, trouble: ServerSaid | Lost, shas: Iterable[str]) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._settings.patience
        if isinstance(trouble, Lost):
            self._check(str(trouble))
            self._wait_to_connect()
            return
        match judge(trouble):
            case Reload():
                self._check(trouble.text)
                self._reload(trouble, shas)
            case Redirect() as to if self._client.address.kind == "cluster":
                self._check(trouble.text)
                assert self._endpoint is not None
                endpoint = self._client.moved(to, self._endpoint)
                self._asked = endpoint if to.ask else None
            case Wait():
                self._check(trouble.text)
                self._rest()
            case Stale() if self._client.address.kind in ("cluster", "sentinel"):
                self._check(trouble.text)
                assert self._endpoint is not None
                self._client.lost(self._endpoint, self._client.wire(self._endpoint))
                self._rest()
            case Refusal() | Redirect() | Stale():
                raise refusal(trouble, self.where) from None

    def _check(self, reason: str) -> None:
        assert self._deadline is not None
        if time.monotonic() >= self._deadline:
            patience = self._settings.patience
            raise unreached(self.where, reason, patience, self._tries, sent=self._sent) from None
        most = self._settings.max_reconnect_attempts
        if most and self._tries >= most:
            raise StorageUnavailable(
                f"server at {self.where}: {reason}; gave up after {self._tries} attempts"
            ) from None

    def _wait_to_connect(self) -> None:
        if self._tries:
            self._sleep(self._delay * random.uniform(0.8, 1.2))
            self._delay = min(self._delay * 2, self._settings.longest_delay)

    def _rest(self) -> None:
        self._sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)

    def _sleep(self, seconds: float) -> None:
        assert self._deadline is not None
        self._client.pause(min(seconds, max(self._deadline - time.monotonic(), 0)))

    def _reload(self, trouble: ServerSaid, shas: Iterable[str]) -> None:
        scripts = self._client.known(shas)
        if not scripts:
            raise refusal(trouble, self.where) from None
        for answer in self._exchange([pack("SCRIPT", "LOAD", script.text) for script in scripts]):
            if isinstance(answer, ServerSaid) and not worth_repeating(answer):
                raise refusal(answer, self.where) from None
