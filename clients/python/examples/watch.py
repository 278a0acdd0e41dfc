"""Prints the events of a run.

    python watch.py http://127.0.0.1:8081 RUN_ID [AFTER_SEQUENCE]

The watch resumes by itself after a lost connection; a program that was stopped continues after the last event that it printed.
"""

import sys

from podium_client import Client


def main() -> None:
    _, url, run_id, *after = sys.argv
    with Client(url) as client:
        for update in client.watch(run_id, int(after[0]) if after else 0):
            if update.WhichOneof("update") == "event":
                # Later versions of the server may have other kinds.
                kind = update.event.WhichOneof("kind") or "unknown"
                print(update.event.sequence, kind, flush=True)


if __name__ == "__main__":
    main()
