"""The settings of a connection, and when a failed call is repeated."""

import random
from dataclasses import dataclass
from importlib.metadata import version
from urllib.parse import urlsplit

import grpc

from podium_client._errors import CallError

# The server's limit of a response.
_RESPONSE_BYTES_MAX = 16 << 20
CALL_DEADLINE_S = 30.0
# Three missing heartbeats: the connection is lost.
SILENCE_MAX_S = 45.0


@dataclass(frozen=True)
class Tls:
    """Certificates, as PEM. Without them, the client trusts the authorities that grpc ships."""

    ca_certificate: bytes | None = None
    """The authority that signed the server's certificate."""
    certificate: bytes | None = None
    """The client's own certificate (mTLS)."""
    key: bytes | None = None
    """The private key of the client's certificate."""
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host of the address."""


@dataclass(frozen=True)
class RetryPolicy:
    """When a failed call is repeated. Only UNAVAILABLE, ABORTED, lost connections, and limits that pass within a
    minute are.

    The pause doubles with each failure, up to `backoff_max_s`; up to half of it is random. If the server asks for a longer pause
    (`google.rpc.RetryInfo`), the client waits that long. A call whose deadline would pass meanwhile fails at once.
    """

    attempts_max: int = 5
    """Maximum number of attempts of one call, the first included."""
    backoff_initial_s: float = 0.1
    backoff_max_s: float = 5.0
    resume_within_s: float = 300.0
    """How long a watch tries to resume after the last message that it received."""

    def pause_s(self, failures: int, error: CallError) -> float:
        """The pause after so many failures in a row, from 1."""
        longest = min(self.backoff_initial_s * 2.0 ** min(failures - 1, 31), self.backoff_max_s)
        return max(longest * random.uniform(0.5, 1.0), error.retry_delay_s or 0.0)


@dataclass(frozen=True)
class Target:
    """Where a client connects to."""

    address: str
    credentials: grpc.ChannelCredentials | None
    options: list[tuple[str, str | int]]

    @classmethod
    def of(cls, url: str, tls: Tls | None) -> "Target":
        """The target of an address. Raises ValueError if the address or its certificates are invalid."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"invalid server address `{url}`: use http://HOST:PORT or https://HOST:PORT")
        options: list[tuple[str, str | int]] = [
            ("grpc.primary_user_agent", f"podium-client-python/{version('podium-client')}"),
            ("grpc.max_receive_message_length", _RESPONSE_BYTES_MAX),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            # This client repeats calls by itself, and wants to know at once when the server can be reached again.
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 5_000),
        ]
        credentials = None
        if parts.scheme == "https":
            tls = tls or Tls()
            credentials = grpc.ssl_channel_credentials(tls.ca_certificate, tls.key, tls.certificate)
            if tls.server_name:
                options.append(("grpc.ssl_target_name_override", tls.server_name))
        elif tls is not None:
            raise ValueError(f"invalid TLS settings for `{url}`: the address must begin with https://")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(f"{host}:{port}", credentials, options)


def metadata_of(api_key: str | None) -> list[tuple[str, str]]:
    """The metadata of each call."""
    return [] if api_key is None else [("authorization", f"Bearer {api_key}")]
