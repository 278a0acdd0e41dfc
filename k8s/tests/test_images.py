"""The Dockerfiles and the compose file. No image is built here: that needs a container engine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from chart import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILES = ["Dockerfile", "Dockerfile.cuda"]
# A Debian release has one version of a package at a time, so a pinned one is gone with the next security fix.
IGNORED = ["DL3008"]


def hadolint(file: Path) -> str:
    ignored = [part for rule in IGNORED for part in ("--ignore", rule)]
    done = subprocess.run([f"{sys.prefix}/bin/hadolint", "--no-color", *ignored, str(file)], capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_finds_nothing(name):
    assert hadolint(DEPLOY / name) == ""


def test_hadolint_finds_a_moving_image(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian:latest\n")
    assert "DL3007" in hadolint(tmp_path / "Dockerfile")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_run_as_the_charts_user_and_say_what_they_are(name):
    last = (DEPLOY / name).read_text().rsplit("\nFROM ", 1)[1]
    values = yaml.safe_load((ROOT / "k8s" / "podium" / "values.yaml").read_text())
    assert f"\nUSER {values['runAsUser']}\n" in last
    assert "org.opencontainers.image.revision=" in last
    assert "/usr/local/bin/ready" in last


def compose() -> list[str] | None:
    """The command of docker compose, wherever it is."""
    named = os.environ.get("DOCKER_COMPOSE") or shutil.which("docker-compose")
    if named:
        return [named]
    has_plugin = shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
    return ["docker", "compose"] if has_plugin else None


@pytest.mark.skipif(not compose(), reason="there is no docker compose; DOCKER_COMPOSE names one")
def test_compose_reads_its_file():
    done = subprocess.run([*compose(), "--file", DEPLOY / "compose.yaml", "config", "--quiet"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not compose(), reason="there is no docker compose; DOCKER_COMPOSE names one")
def test_compose_refuses_an_unknown_key(tmp_path):
    broken = tmp_path / "compose.yaml"
    broken.write_text((DEPLOY / "compose.yaml").read_text().replace("read_only: true", "read_onlyy: true"))
    done = subprocess.run([*compose(), "--file", broken, "config", "--quiet"], capture_output=True, text=True)
    assert done.returncode != 0 and "read_onlyy" in done.stderr
