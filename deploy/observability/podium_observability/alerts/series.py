"""Metrics, labels and severities that several alerts use."""

from podium_observability.model import Severity

CALLS = "gen_ai_client_operation_duration_seconds_count"
CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
GATEWAY = 'job="podium-gateway",instance="g1"'
EXECUTOR = 'job="podium-executor",instance="e1"'
# Shares of a small number are noise: an alert on a share needs at least this many events a second.
RATE_MIN = "0.02"
