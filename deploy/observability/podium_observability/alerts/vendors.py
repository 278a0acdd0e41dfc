"""The alerts on vendors that fail or refuse calls."""

from podium_observability.alerts.series import CALLS, EXECUTOR, RATE_MIN, WARNING
from podium_observability.expressions import increase, rate, share
from podium_observability.model import Alert, Case

BROKEN = 'error_type=~"limited|overloaded|failed"'
VENDOR_FAILING = Alert(
    "PodiumVendorFailing",
    WARNING,
    f"{share(rate(CALLS, 'gen_ai_provider_name', BROKEN, '5m'), rate(CALLS, 'gen_ai_provider_name', '', '5m'))} > 0.3"
    f" and {rate(CALLS, 'gen_ai_provider_name', '', '5m')} > {RATE_MIN}",
    "10m",
    "{{ $value | humanizePercentage }} of the calls to {{ $labels.gen_ai_provider_name }} fail",
    "The vendor answers with errors or 429, or not at all. Steps are retried and fall back to other workers.",
    "More than 30 % of the calls to a vendor fail.",
    (
        Case(
            "half of the calls get no answer",
            {
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a"}}': "0+30x40",
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a",error_type="overloaded"}}': "0+30x40",
            },
            "30m",
            ({"gen_ai_provider_name": "sim"},),
        ),
        Case(
            "callers cancel half of the calls",
            {
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a"}}': "0+30x40",
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a",error_type="broken_off"}}': "0+30x40",
            },
            "30m",
        ),
    ),
)

INVALID = 'error_type="refused"'
VENDOR_REFUSES = Alert(
    "PodiumVendorRefusesCalls",
    WARNING,
    f"{share(rate(CALLS, 'podium_worker', INVALID, '10m'), rate(CALLS, 'podium_worker', '', '10m'))} > 0.2"
    f" and {rate(CALLS, 'podium_worker', '', '10m')} > {RATE_MIN}",
    "10m",
    "The vendor of {{ $labels.podium_worker }} refuses {{ $value | humanizePercentage }} of the calls",
    "The vendor considers the requests invalid. Often the model's name or a declared feature in the pool file is wrong.",
    "A vendor refuses more than 20 % of a worker's calls as invalid.",
    (
        Case(
            "every call is refused",
            {f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a",error_type="refused"}}': "0+30x40"},
            "30m",
            ({"podium_worker": "a"},),
        ),
        Case(
            "a tenth is refused",
            {
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a"}}': "0+27x40",
                f'{CALLS}{{{EXECUTOR},gen_ai_provider_name="sim",podium_worker="a",error_type="refused"}}': "0+3x40",
            },
            "30m",
        ),
    ),
)

SHUT = 'podium_outcome="broken"'
BREAKER = Alert(
    "PodiumBreakerOpen",
    WARNING,
    "max by (podium_worker) (podium_breaker_open) == 1"
    f" and on (podium_worker) {increase('podium_permit_asked_total', 'podium_worker', SHUT, '5m')} > 0",
    "10m",
    "The circuit breaker of {{ $labels.podium_worker }} is open",
    "Steps ask for this worker, and its breaker has refused them for ten minutes, because its calls fail. Steps fall back to other workers.",
    "A worker's circuit breaker has been open for ten minutes while steps ask for the worker.",
    (
        Case(
            "steps are refused",
            {
                f'podium_breaker_open{{{EXECUTOR},podium_worker="a"}}': "1x30",
                f'podium_permit_asked_total{{{EXECUTOR},podium_worker="a",podium_outcome="broken"}}': "0+3x30",
            },
            "20m",
            ({"podium_worker": "a"},),
        ),
        Case(
            "nobody has asked since",
            {
                f'podium_breaker_open{{{EXECUTOR},podium_worker="a"}}': "1x30",
                f'podium_permit_asked_total{{{EXECUTOR},podium_worker="a",podium_outcome="broken"}}': "3x30",
            },
            "20m",
        ),
    ),
)
