"""Asks the server what its OpenAPI allows; test_service_openapi.py runs it apart, without pytest."""

import sys
from pathlib import Path

import schemathesis
from _serving import Serving
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error

EXAMPLES = 5
"""Of each endpoint and way."""
ENDLESS = ("/v1/jobs/{name}/events",)
"""Answers that go on while a job does."""


def asking(operation, key):
    """A test of Hypothesis that asks one endpoint, in ways that its schema allows and in others."""
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])  # made once: that takes long

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def ask(case):
        if operation.path in {"/v1/judge", "/v1/tasks/waiting"}:
            case.query = {"wait": 0}
        if isinstance(case.body, dict) and "wait" in case.body:
            case.body["wait"] = 0
        case.call_and_validate(headers=key, checks=[not_a_server_error])

    return ask


def ask_all(folder):
    asked = 0
    with Serving(folder) as serving:
        key = {"Authorization": f"Bearer {serving.token()}"}
        schema = schemathesis.openapi.from_asgi("/openapi.json", serving.app)
        for result in schema.get_all_operations():
            if (operation := result.ok()).path not in ENDLESS:
                asking(operation, key)()
                asked += 1
    assert asked > 25


if __name__ == "__main__":
    ask_all(Path(sys.argv[1]))
