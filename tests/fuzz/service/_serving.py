"""What tests of the server share: a database in a file, a finding, a client without a socket."""

import itertools
from pathlib import Path

from fastapi.testclient import TestClient

from kernel_assay.corpus.model.findings import Environment, Finding
from kernel_assay.corpus.storage.reading import read_record
from kernel_assay.fuzz.service.app import application
from kernel_assay.fuzz.service.auth import make_token
from kernel_assay.fuzz.service.core import Service
from kernel_assay.fuzz.service.protocol import LeaseRequest, Scope
from kernel_assay.fuzz.service.settings import ServiceSettings

ALL = ("read", "submit", "work", "admin")
ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = Environment(python="3.11", platform="here", machine="x86_64")


def found(number=0):
    """A finding of the committed ones; its subject is no seeded bug here."""
    paths = sorted((ROOT / "corpus/regressions").glob("*/*.json"))
    known = read_record(paths[number], Finding)
    return known.but(subject=known.subject.but(planted=""), expect="pass", reason="")


def asked(worker="w1", **more):
    return LeaseRequest(worker=worker, environment=ENVIRONMENT, **{"local": True, **more})


class Serving:
    """A server in this process, and a client for each token."""

    def __init__(self, folder, **settings):
        url = settings.pop("database", f"sqlite:///{folder}/service.db")
        self.service = Service(ServiceSettings(database=url, **{"rate": 0.0, **settings}))
        self.app = application(self.service)
        self._client = TestClient(self.app, raise_server_exceptions=False)
        self._numbers = itertools.count()

    def __enter__(self):
        self._client.__enter__()
        return self

    def __exit__(self, *error):
        self._client.__exit__(*error)

    def token(self, *scopes):
        with self.service.database.writing() as connection:
            name = f"t{next(self._numbers)}"
            return make_token(connection, name, [Scope(s) for s in scopes or ALL], None, "test")

    def client(self, *scopes):
        """A client with a token of these scopes; of all, if none is named."""
        client = TestClient(self.app, raise_server_exceptions=False, follow_redirects=False)
        client.headers["Authorization"] = f"Bearer {self.token(*scopes)}"
        return client

    def browser(self):
        """A client that is signed in as a browser is, and the word of its forms."""
        client = TestClient(self.app, raise_server_exceptions=False, follow_redirects=False)
        assert client.post("/signin", data={"token": self.token()}).status_code == 303
        page = client.get("/findings").text
        return client, page.split('name="csrf" value="')[1].split('"')[0]
