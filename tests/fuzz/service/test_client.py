import httpx
import pytest

from kernel_assay import client as public
from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service import client as module
from kernel_assay.fuzz.service.client import AwayError, Client, ServiceError
from kernel_assay.fuzz.service.protocol import JobKind, JobRequest

JOB = {
    "id": "ab",
    "kind": "judge",
    "project": None,
    "target": {},
    "settings": {},
    "priority": 5,
    "state": "done",
    "created": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.0)
    return []


def client_of(asked, *answers):
    rest = list(answers)

    def answer(request):
        asked.append(request)
        given = rest.pop(0) if len(rest) > 1 else rest[0]
        if isinstance(given, Exception):
            raise given
        return given

    return Client("http://server:1", "kassay_x", httpx.MockTransport(answer))


def test_what_is_submitted_again_is_the_same_job(asked):
    with client_of(asked, httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(201, json=JOB)) as client:
        assert client.submit(JobRequest(kind=JobKind.JUDGE)).id == "ab"
    bodies = [JobRequest.model_validate_json(one.content) for one in asked]
    assert len(bodies) == 3
    assert len({one.key for one in bodies}) == 1
    assert bodies[0].key
    assert asked[0].headers["Authorization"] == "Bearer kassay_x"


def test_a_server_that_is_away_is_said_to_be(asked):
    with client_of(asked, httpx.ConnectError("refused")) as client, pytest.raises(AwayError, match="cannot be reached"):
        client.job("ab")
    assert len(asked) == module.TRIES


def test_what_must_not_be_asked_twice_is_not(asked):
    with client_of(asked, httpx.ConnectError("refused")) as client, pytest.raises(AwayError):
        client.cancel("ab")
    assert len(asked) == 1


def test_a_refusal_is_the_sentence_of_the_server(asked):
    problem = httpx.Response(409, json={"title": "Conflict", "status": 409, "detail": "it is another worker's"})
    with client_of(asked, problem) as client, pytest.raises(ServiceError, match="another worker") as raised:
        client.job("ab")
    assert raised.value.status == 409
    with client_of(asked, httpx.Response(404, text="<html>")) as client, pytest.raises(ServiceError, match="404"):
        client.job("ab")
    with (
        client_of(asked, httpx.Response(200, json={"x": 1})) as client,
        pytest.raises(UsageError, match="does not answer"),
    ):
        client.job("ab")


@pytest.mark.parametrize("address", ["ftp://x", "http://", "file:///etc", "http://x:port"])
def test_refuses_what_is_no_address(address):
    with pytest.raises(UsageError, match="no address"):
        Client(address, "t")


def test_all_that_is_public_is_there():
    assert all(hasattr(public, name) for name in public.__all__)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: public.Sources(files={"a.py": "secret" * 400_000}), "more than 2 MB"),
        (lambda: public.Sources(files={"a.py": "secret \ud800"}), "halves of characters"),
        (lambda: public.Settings(cases=0), "cases: it must be more than 0"),
        (lambda: public.JobRequest(kind="judge", secret=1), "no such key"),
        (lambda: public.JobRequest(kind="verify", finding=None), "needs a finding"),
    ],
)
def test_what_no_server_takes_is_one_sentence_without_what_was_to_be_sent(made, said):
    with pytest.raises(UsageError, match=said) as raised:
        made()
    assert "secret'" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_what_is_sent_is_what_the_protocol_says(asked):
    sources = public.Sources(files={"a.py": "x = 1"})
    request = public.JobRequest(kind="judge", sources=sources, settings=public.Settings(cases=4), key="k")
    with client_of(asked, httpx.Response(201, json=JOB)) as client:
        client.submit(request)
    sent = JobRequest.model_validate_json(asked[0].content)
    assert (sent.sources.files, sent.settings.cases, sent.id) == (sources.files, 4, request.id)
