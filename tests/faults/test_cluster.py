"""A cluster whose master dies; `reliability.md` F1."""

from __future__ import annotations

import time
from pathlib import Path

from tests.faults.stage import Stage
from tests.resp.nodes import SLOTS, ask, cluster
from tests.servers import Server
from toril.resp.cluster import slot_of


def _is_master(server: Server) -> bool:
    answer = ask(server, "INFO", "replication")
    return isinstance(answer, bytes) and b"role:master" in answer


async def test_f1_a_killed_master_costs_seconds_and_no_acked_job(tmp_path: Path) -> None:
    with cluster(3, 1) as servers:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        stage = Stage(tmp_path, f"redis+cluster://{hosts}?durability=replicated:1")
        try:
            workers = [stage.worker(f"w{number}", concurrency=4, lease=10) for number in range(2)]
            await stage.ready(*workers)
            producer = stage.producer("p", count=1200, gap=0.005)
            await stage.until(lambda: len(stage.of("enqueue", "ok")) > 100, 20)
            number = slot_of("{jq:faults}:") // (SLOTS // 3)
            master, replica = servers[number], servers[3 + number]
            master.kill()
            died = time.monotonic()
            await stage.until(lambda: _is_master(replica), 20, "no failover")
            # The new master has no replica, so nothing is acked until the old one is that.
            master.start()
            back = time.monotonic()
            await stage.until(lambda: stage.of("enqueue", "ok", after=back), 10, "no ack")
            await stage.until(lambda: stage.of("commit", "ok", after=back), 10, "no work")
            print(
                f"acked again {stage.of('enqueue', 'ok', after=back)[0].t_mono - died:.2f} s later"
            )
            await stage.ended(producer, 60)
            await stage.drained(len(stage.of("enqueue", "ok")), 40)
            stage.check()
        finally:
            stage.close()
