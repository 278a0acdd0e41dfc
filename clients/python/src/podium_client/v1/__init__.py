"""The messages and enums of `podium.v1`, generated from `proto/`."""

from podium_client.v1.event_pb2 import *  # noqa: F403
from podium_client.v1.podium_pb2 import *  # noqa: F403
from podium_client.v1.run_pb2 import *  # noqa: F403
