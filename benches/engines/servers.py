"""Private servers for a benchmark: on loopback, on free ports, with their files in one temporary folder."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

START_S_MAX = 60
STOP_S_MAX = 30


class ServerError(Exception):
    """A server is not available."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process that ends with this value, and what it wrote."""

    def __init__(self, name: str, command: list[str | Path], folder: Path, **how: object) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **how)

    @property
    def pid(self) -> int:
        return self.process.pid

    def until(self, answers: Callable[[], bool]) -> None:
        """Waits until it answers."""
        deadline = time.monotonic() + START_S_MAX
        while not answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-2000:]
                raise ServerError(f"{self.name} does not answer; it wrote:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        # Postgres takes SIGINT as the order to stop at once and in order; the others do not mind.
        self.process.send_signal(2)
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Postgres:
    """A Postgres that syncs its commits. Its superuser `bench` needs no password."""

    def __init__(self, folder: Path) -> None:
        self.bin = postgres_bin()
        # It does not run as root.
        how = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        home = folder / "postgres"
        home.mkdir()
        if how:
            shutil.chown(home, "postgres", "postgres")
        data, self.port = home / "data", free_port()
        initdb = [self.bin / "initdb", "-D", data, "-U", "bench", "--auth=trust", "--no-instructions"]
        subprocess.run(initdb, check=True, cwd=home, stdout=subprocess.DEVNULL, **how)
        settings = ["listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories=", "fsync=on"]
        settings += ["synchronous_commit=on", "full_page_writes=on", "shared_buffers=512MB", "max_connections=200", "max_wal_size=4GB"]
        options = [option for setting in settings for option in ("-c", setting)]
        self.server = Server("postgres", [self.bin / "postgres", "-D", data, *options], folder, cwd=home, **how)
        pid_file = data / "postmaster.pid"
        self.server.until(lambda: pid_file.exists() and "ready" in pid_file.read_text())

    def database(self, name: str) -> str:
        """Makes an empty database, in place of the one that there may be; gives its address."""
        address = ["--host=127.0.0.1", f"--port={self.port}", "--username=bench"]
        subprocess.run([self.bin / "dropdb", "--if-exists", "--force", *address, name], check=True, stderr=subprocess.DEVNULL)
        subprocess.run([self.bin / "createdb", *address, name], check=True)
        return f"postgresql://bench@127.0.0.1:{self.port}/{name}"

    def version(self) -> str:
        return subprocess.run([self.bin / "postgres", "--version"], check=True, capture_output=True, text=True).stdout.strip()


def postgres_bin() -> Path:
    """The folder of Postgres' programs: in PATH, or where Debian puts the newest."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not folders:
        raise ServerError("Postgres is missing; scripts/setup servers installs it")
    return folders[-1].parent


class Restate:
    """A Restate server with the service of the benchmark."""

    def __init__(self, folder: Path, installed: Path) -> None:
        platform = os.uname()
        machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine, platform.machine)
        package = f"@restatedev/restate-server-{platform.sysname.lower()}-{machine}"
        program = installed / "node_modules" / package / "bin" / "restate-server"
        if not program.exists():
            raise ServerError(f"there is no Restate server for this machine: {package} was not installed")
        ingress, admin, service = free_port(), free_port(), free_port()
        self.ingress = f"http://127.0.0.1:{ingress}"
        # All other settings are the server's defaults; it syncs its log.
        config = folder / "restate.toml"
        config.write_text(
            f"""
disable-telemetry = true
listen-mode = "tcp"
bind-address = "127.0.0.1:{free_port()}"
base-dir = "{folder / "restate"}"
default-num-partitions = 4
rocksdb-total-memory-size = "1.0 GiB"
[admin]
bind-address = "127.0.0.1:{admin}"
[ingress]
bind-address = "127.0.0.1:{ingress}"
"""
        )
        quiet = {"env": os.environ | {"RESTATE_LOGGING": "ERROR"}}
        self.service = Server("restate-service", ["node", installed / "service.mjs", str(service)], folder, cwd=installed, **quiet)
        self.server = Server("restate", [program, "--config-file", config, "--no-logo"], folder, cwd=folder)
        self.service.until(lambda: "listening" in self.service.log.read_text())
        self.server.until(lambda: answers(f"http://127.0.0.1:{admin}/health"))
        self.register(f"http://127.0.0.1:{admin}/deployments", f"http://127.0.0.1:{service}")
        self.server.until(lambda: answers(f"{self.ingress}/restate/health"))

    def register(self, deployments: str, service: str) -> None:
        body = json.dumps({"uri": service}).encode()
        call = urllib.request.Request(deployments, body, {"content-type": "application/json"})
        with urllib.request.urlopen(call, timeout=START_S_MAX) as answer:
            answer.read()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False
