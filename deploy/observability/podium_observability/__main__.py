"""`python -m podium_observability`: writes the dashboards, the rules, their tests and the index of the runbooks."""

import argparse
from pathlib import Path

from podium_observability import alerts, dashboards, grafana, provoke, record, rules, scenarios
from podium_observability.metrics import ROOT

HERE = ROOT / "deploy" / "observability"
RUNBOOKS = ROOT / "docs" / "runbooks"
PROVOKED = HERE / "tests" / "provoked"


def generated() -> dict[Path, str]:
    """Every generated file with its text."""
    texts = {HERE / "dashboards" / f"{board.uid}.json": grafana.dashboard_json(board) for board in dashboards.ALL}
    texts[HERE / "alerts.yaml"] = rules.rules_yaml(alerts.ALL)
    texts[HERE / "alerts_test.yaml"] = rules.tests_yaml(alerts.ALL)
    texts[RUNBOOKS / "README.md"] = rules.index(alerts.ALL)
    return texts


def recording_of(scenario: str) -> Path:
    """The file with the recording of a scenario."""
    return PROVOKED / f"{scenario}.txt.xz"


def main() -> None:
    parser = argparse.ArgumentParser(prog="podium_observability", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("generate", help="write the generated files")
    recording = commands.add_parser("record", help="record the metrics of a real cluster under load and faults (six minutes)")
    recording.add_argument("--binaries", type=Path, required=True, help="the folder of Podium's binaries, with llama.cpp")
    recording.add_argument("--work", type=Path, required=True, help="a folder for logs")
    recording.add_argument("--output", type=Path, default=HERE / "tests" / "recorded.txt.xz", help="the file to write")
    provoking = commands.add_parser("provoke", help="record how faults of real processes make the alerts fire (22 minutes)")
    provoking.add_argument("--binaries", type=Path, required=True, help="the folder of Podium's binaries, with llama.cpp")
    provoking.add_argument("--work", type=Path, required=True, help="a folder for logs")
    provoking.add_argument("--only", choices=[scenario.name for scenario in scenarios.ALL], help="one of the scenarios")
    given = parser.parse_args()
    if given.command == "provoke":
        for scenario in scenarios.ALL:
            if given.only in (None, scenario.name):
                provoke.record(scenario, alerts.ALL, given.binaries, given.work / scenario.name, recording_of(scenario.name))
        return
    if given.command == "record":
        record.record(given.binaries, f"llama:{ROOT / 'models' / 'nano'}", given.work, given.output)
        return
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
