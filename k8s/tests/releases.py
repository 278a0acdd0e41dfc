"""The chart of the newest release, out of a repository's tags."""

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

IN_REPOSITORY = "k8s/podium"
# Git sorts `v0.2.0-rc.1` after `v0.2.0` unless it is told that `-` begins the name of an earlier version.
GIT = ["git", "-c", "versionsort.suffix=-"]


def git(repository: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([*GIT, "-C", str(repository), *arguments], capture_output=True)


def chart_of_last_tag(repository: Path, folder: Path) -> Path | None:
    """Writes the chart of the newest version's tag that is an ancestor of HEAD and has a chart into `folder`. None without such a tag."""
    tags = git(repository, "tag", "--list", "v[0-9]*", "--merged", "HEAD", "--sort=-version:refname")
    assert tags.returncode == 0, tags.stderr.decode()
    for tag in tags.stdout.decode().split():
        archive = git(repository, "archive", tag, IN_REPOSITORY)
        if archive.returncode == 0:
            with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
                files.extractall(folder, filter="data")
            return folder / IN_REPOSITORY
    return None


def contents(chart: Path) -> dict[str, str]:
    """The files that a release is made from: without pages and examples."""
    files = [chart / "Chart.yaml", chart / "values.yaml", chart / "values.schema.json", *chart.glob("templates/**/*.*")]
    return {str(file.relative_to(chart)): file.read_text() for file in files}
