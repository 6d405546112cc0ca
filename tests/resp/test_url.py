"""The grammar of server URLs: what is read, what is refused, what is shown."""

from __future__ import annotations

import pytest
import redis
import redis.asyncio
from redis.asyncio.sentinel import Sentinel

from toril.errors import InvalidOption
from toril.resp.adopt import address_of_client
from toril.resp.greet import Settings
from toril.resp.secret import Secret
from toril.resp.url import Address, parse_url

HOST = (("h", 6379),)

GOOD = {
    "redis://h": Address(hosts=HOST),
    "redis://h:1/3": Address(hosts=(("h", 1),), db=3),
    "redis://h/": Address(hosts=HOST),
    "REDIS://h": Address(hosts=HOST),
    "bullmq+redis://h": Address(layout="bullmq", hosts=HOST),
    "rediss://h": Address(hosts=HOST, tls=True),
    "rediss://h?verify=off": Address(hosts=HOST, tls=True, verify=False),
    "rediss://h?ca=/a.pem&cert=c&key=k": Address(
        hosts=HOST, tls=True, ca="/a.pem", cert="c", key="k"
    ),
    "redis://u:p@h": Address(hosts=HOST, username="u", password=Secret("p")),
    "redis://:p@h": Address(hosts=HOST, password=Secret("p")),
    "redis://u@h": Address(hosts=HOST, username="u"),
    "redis://u:@h": Address(hosts=HOST, username="u"),
    "redis://:a%40b%2F%3F%3A@h": Address(hosts=HOST, password=Secret("a@b/?:")),
    "redis://:a@b@h": Address(hosts=HOST, password=Secret("a@b")),
    "redis://[::1]:7/1": Address(hosts=(("::1", 7),), db=1),
    "redis://[::1]": Address(hosts=(("::1", 6379),)),
    "unix:///run/r.sock": Address(kind="unix", path="/run/r.sock"),
    "unix:///run/r%20x.sock?db=2": Address(kind="unix", path="/run/r x.sock", db=2),
    "bullmq+unix://u:p@/r.sock": Address(
        layout="bullmq", kind="unix", path="/r.sock", username="u", password=Secret("p")
    ),
    "redis+cluster://a:1,b:2": Address(kind="cluster", hosts=(("a", 1), ("b", 2))),
    "bullmq+rediss+cluster://a": Address(
        layout="bullmq", kind="cluster", tls=True, hosts=(("a", 6379),)
    ),
    "redis+sentinel://a,b:5/main": Address(
        kind="sentinel", hosts=(("a", 26379), ("b", 5)), master="main"
    ),
    "rediss+sentinel://u:p@a/main/4": Address(
        kind="sentinel",
        hosts=(("a", 26379),),
        master="main",
        db=4,
        tls=True,
        username="u",
        password=Secret("p"),
    ),
    "embedded:": Address(kind="embedded"),
    "embedded:some/dir": Address(kind="embedded", path="some/dir"),
    "bullmq+embedded:/d?prefix=x": Address(layout="bullmq", kind="embedded", path="/d", prefix="x"),
    "bullmq+redis://h?ids=counter&metrics=20160": Address(
        layout="bullmq", hosts=HOST, ids="counter", metrics=20160
    ),
    "redis://h?prefix=p&hash_tag=off&timeout=1.5&client_name=me": Address(
        hosts=HOST, prefix="p", hash_tag=False, timeout=1.5, client_name="me"
    ),
    "redis://h?hash_tag=on&durability=replicated:2": Address(
        hosts=HOST, hash_tag=True, durability="replicated:2"
    ),
    "redis://h?durability=local": Address(hosts=HOST, durability="local"),
}

BAD = {
    "": "no scheme",
    "redis": "no scheme",
    "//h": "no scheme",
    "rediis://h": "Did you mean 'redis'",
    "http://h": "unknown scheme 'http'",
    "bulmq+redis://h": "Did you mean 'bullmq\\+redis'",
    "bullmq+http://h": "unknown scheme",
    "redis:h": "two slashes",
    "redis:/h": "two slashes",
    "redis://": "cannot read the host",
    "redis://h:x": "cannot read the host",
    "redis://h:0": "port is between",
    "redis://h:99999999999": "port is between",
    "redis://a b": "cannot read the host",
    "redis://::1": "cannot read the host",
    "redis://h/x": "database is a number",
    "redis://h/-1": "database is a number",
    "redis://h/1/2": "too many",
    "redis://a,b": "one host only",
    "redis+cluster://a/1": "no database numbers",
    "redis+cluster://a,": "cannot read the host",
    "redis+sentinel://a": "name the master",
    "unix://r.sock": "absolute path",
    "unix:///": "absolute path",
    "unix:///a?db=x": "database is a number",
    "redis://h?db=1": "unknown parameter 'db'",
    "redis://h?prefx=1": "Did you mean 'prefix'",
    "redis://h?prefix=": "is empty",
    "redis://h?prefix": "name=value",
    "redis://h?prefix=a&prefix=b": "given twice",
    "redis://h?ca=x": "needs TLS",
    "rediss://h?cert=x": "come together",
    "rediss://h?verify=maybe": "on or off",
    "redis://h?hash_tag=2": "on or off",
    "redis://h?timeout=0": "seconds above 0",
    "redis://h?timeout=-1": "seconds above 0",
    "redis://h?timeout=nan": "seconds above 0",
    "redis://h?durability=fsync": "none of memory, local",
    "redis://h?durability=replicated": "Did you mean 'replicated:1'",
    "redis://h?durability=replicated:0": "none of memory, local",
    "redis://h?client_name=a%20b": "no space",
    "redis://h?ids=counter": "'ids' needs a BullMQ queue",
    "redis://h?metrics=5": "'metrics' needs a BullMQ queue",
    "bullmq+redis://h?ids=uuid": "none of ulid, counter",
    "bullmq+redis://h?metrics=0": "a whole number of minutes",
    "bullmq+redis://h?metrics=1.5": "a whole number of minutes",
    "redis://h#x": "%23",
    "redis://:%ff@h": "not UTF-8",
}


@pytest.mark.parametrize("url", GOOD)
def test_a_url_of_the_grammar_is_read(url: str) -> None:
    assert parse_url(url) == GOOD[url]


@pytest.mark.parametrize("url", BAD)
def test_what_is_not_in_the_grammar_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match=BAD[url]):
        parse_url(url)


@pytest.mark.parametrize("url", [url for url in GOOD if ":p@" not in url and "%40" not in url])
def test_the_safe_form_without_a_password_reads_back(url: str) -> None:
    address = parse_url(url)
    if address.password is None:
        assert parse_url(address.safe) == address


def test_the_safe_form_has_stars_for_the_password() -> None:
    assert parse_url("redis://bob:pw@h/2").safe == "redis://bob:***@h:6379/2"
    assert repr(parse_url("redis://:pw@h")) == "Address('redis://:***@h:6379')"


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:canary@h:x",
        "redis://u:canary",
        "redis:u:canary@h",
        "redis://u:canary@h?canary",
        "redis://u:1?canary=2@h",
        "redis://u:12?x=canary@h",
        "redis://u:can#canary@h",
        "redis://u:canary@h/canary",
        "redis://u:canary@h/1/2",
        "redis://u:canary@h?timeout=x",
        "redis://u:canary@h?pasword=canary",
        "canary@h",
        "redis://u:canary@a,b",
        "unix://u:canary@x",
    ],
)
def test_no_refusal_shows_a_password(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_url(url)
    assert "canary" not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_what_the_url_says_holds_where_nothing_else_is_given() -> None:
    address = parse_url("redis://h?timeout=9&client_name=me&durability=local")
    assert Settings.of(address) == Settings(command_timeout=9, client_name="me", durability="local")
    assert Settings.of(address, Settings(patience=1, client_name="you")) == Settings(
        command_timeout=9, client_name="you", durability="local", patience=1
    )


def test_a_plain_client_of_the_user_gives_its_address() -> None:
    for module in (redis, redis.asyncio):
        client = module.Redis(host="h", port=7, db=2, username="u", password="pw")
        assert address_of_client(client) == Address(
            hosts=(("h", 7),), db=2, username="u", password=Secret("pw")
        )
        client = module.Redis.from_url("rediss://h?ssl_ca_certs=/ca&ssl_cert_reqs=none")
        assert address_of_client(client) == Address(hosts=HOST, tls=True, ca="/ca", verify=False)
        client = module.Redis(unix_socket_path="/s", client_name="me")
        assert address_of_client(client) == Address(kind="unix", path="/s", client_name="me")


def test_a_sentinel_client_of_the_user_gives_its_address() -> None:
    sentinel = Sentinel([("a", 1), ("b", 2)])  # type: ignore[no-untyped-call]
    client = sentinel.master_for("main", password="pw", db=1)
    assert address_of_client(client) == Address(
        kind="sentinel", hosts=(("a", 1), ("b", 2)), master="main", db=1, password=Secret("pw")
    )


def test_a_cluster_client_of_the_user_gives_its_address() -> None:
    client = redis.asyncio.RedisCluster(host="h", port=3, password="pw")
    address = address_of_client(client)
    assert (address.kind, address.hosts, address.tls) == ("cluster", (("h", 3),), False)
    assert address.password == Secret("pw")


def test_a_credential_provider_is_asked_at_every_login() -> None:
    class Rotating(redis.CredentialProvider):
        turn = 0

        def get_credentials(self) -> tuple[str, str]:
            self.turn += 1
            return "bob", f"pw{self.turn}"

    address = address_of_client(redis.Redis(host="h", credential_provider=Rotating()))
    assert address.login() == ("bob", Secret("pw1"))
    assert address.login() == ("bob", Secret("pw2"))


def test_something_else_is_no_client() -> None:
    with pytest.raises(InvalidOption, match=r"type int.*redis-py client"):
        address_of_client(5)
    with pytest.raises(InvalidOption, match="ssl_ca_data"):
        address_of_client(redis.Redis(host="h", ssl=True, ssl_ca_data="x"))
