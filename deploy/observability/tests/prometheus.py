"""Prometheus and promtool for the tests."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from podium_observability.metrics import ROOT

HERE = ROOT / "deploy" / "observability"


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`; fetched if it is not there."""
    fetched = subprocess.run([HERE / "setup-prometheus"], capture_output=True, text=True)
    if fetched.returncode == 0:
        return str(Path(fetched.stdout.strip()) / name)
    found = shutil.which(name)
    assert found, fetched.stderr
    return found


class Prometheus:
    """A server over recorded samples. It scrapes nothing."""

    def __init__(self, work: Path, recorded: str) -> None:
        (work / "recorded.txt").write_text(recorded)
        (work / "prometheus.yml").write_text("global: {}\n")
        data = work / "data"
        blocks = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(work / "recorded.txt"), str(data)]
        made = subprocess.run(blocks, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{address}"
        command = [
            program("prometheus"),
            f"--config.file={work / 'prometheus.yml'}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address={address}",
        ]
        with (work / "log").open("wb") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_until_ready(work / "log")

    def wait_until_ready(self, log: Path) -> None:
        for _ in range(600):
            assert self.child.poll() is None, log.read_text()
            try:
                urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).close()
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise AssertionError(log.read_text())

    def range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"query": expression, "start": start, "end": end, "step": step})
        with urllib.request.urlopen(f"{self.url}/api/v1/query_range?{query}", timeout=60) as response:
            return json.load(response)["data"]["result"]

    def stop(self) -> None:
        self.child.terminate()
        self.child.wait(30)
