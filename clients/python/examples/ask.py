"""Asks a question and prints the answer as it is written.

    python ask.py http://127.0.0.1:8081 "Why is the sky blue?"

PODIUM_API_KEY is the key, if the server asks for one.
"""

import os
import sys

from podium_client import Client, Ended, Restarted, Text, question
from podium_client.v1 import run_pb2


def main() -> None:
    _, url, text = sys.argv
    with Client(url, api_key=os.environ.get("PODIUM_API_KEY")) as client:
        for part in client.ask(question(text)):
            match part:
                case Text(text):
                    print(text, end="", flush=True)
                case Restarted():
                    print("\n--- the answer begins again ---")
                case Ended(run) if run.state == run_pb2.RUN_STATE_SUCCEEDED:
                    print()
                case Ended(run):
                    sys.exit(f"the run has no answer: {run.failure}")


if __name__ == "__main__":
    main()
