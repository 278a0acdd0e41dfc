"""A cluster of real processes with two gateways, and one address that leads to the first gateway that is alive."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator

from conftest import Process, binary

START_MAX_S = 120
# No program here writes more at once.
CHUNK = 65536


class Failover:
    """A TCP proxy: each connection is handed to the first server that accepts it."""

    def __init__(self, servers: list[tuple[str, int]]) -> None:
        self.servers = servers
        # The connections that each server has got.
        self.connections = [0] * len(servers)
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self) -> None:
        # Closing the listener ends the loop.
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.relay, args=(client,), daemon=True).start()

    def relay(self, client: socket.socket) -> None:
        server = self.connect()
        if server is None:
            client.close()
            return
        threading.Thread(target=pump, args=(client, server), daemon=True).start()
        pump(server, client)

    def connect(self) -> socket.socket | None:
        for number, address in enumerate(self.servers):
            with contextlib.suppress(OSError):
                server = socket.create_connection(address)
                self.connections[number] += 1
                return server
        return None

    def close(self) -> None:
        # Unlike `close`, this wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Hands bytes on until either side ends, and then ends both."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK):
            sink.sendall(chunk)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


class Cluster:
    """Postgres, NATS, Redis, a simulated vendor, two gateways, a planner and two executors."""

    def __init__(self, folder: pathlib.Path, pool: str, conductor: str) -> None:
        (folder / "pool.toml").write_text(pool)
        arguments = [binary("podium-local-cluster", "PODIUM_LOCAL_CLUSTER_BIN"), "--gateways", "2"]
        arguments += ["--conductor", conductor, "--pool", f"{folder}/pool.toml"]
        self.process = Process(arguments, folder / "cluster.log")
        try:
            self.gateways, self.vendor = self.addresses()
        except BaseException:
            self.process.stop()
            raise
        self.proxy = Failover(self.gateways)

    def addresses(self) -> tuple[list[tuple[str, int]], str]:
        """The HTTP addresses of the gateways and that of the vendor, once the cluster is ready."""
        deadline = time.monotonic() + START_MAX_S
        while True:
            log = self.process.log.read_text()
            if vendor := re.search(r"^  workers +(http://\S+)/v1$", log, re.MULTILINE):
                gateways = re.findall(r"^  gateway +http://([^:]+):(\d+)/v1", log, re.MULTILINE)
                return [(host, int(port)) for host, port in gateways], vendor[1]
            assert self.process.process.poll() is None, f"the cluster ended at once: {log}"
            assert time.monotonic() < deadline, f"the cluster does not start: {log}"
            time.sleep(0.05)

    @property
    def http(self) -> str:
        return self.proxy.http

    def kill_gateway(self, number: int) -> None:
        host, port = self.gateways[number]
        (pid,) = (pid for pid, command in commands() if "podium-gateway" in command[0] and f"listen={host}:{port}" in command)
        os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        self.proxy.close()
        self.process.stop()


def commands() -> Iterator[tuple[int, list[str]]]:
    """The ids and command lines of the processes of this machine."""
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            # A process may end meanwhile.
            with contextlib.suppress(OSError):
                yield int(folder.name), (folder / "cmdline").read_text().split("\0")
