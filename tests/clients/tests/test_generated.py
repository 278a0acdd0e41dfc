"""The committed code of the packages in `clients/` is the code that their generators make of `proto/`."""

import subprocess

from conftest import ROOT


def test_the_generated_code_matches_the_protocol() -> None:
    command = [ROOT / "scripts/generate-clients", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
