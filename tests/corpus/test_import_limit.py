"""A file whose import does not end is named in one sentence, and so is the line that it has got to."""

import os
import signal
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process import child, import_limit
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.user_references import ReferenceProcess
from kernel_assay.kernels.backends.support.importing import import_file
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.kernels.sandbox import probing
from kernel_assay.oracles.catalog import add_contract
from kernel_assay.oracles.references.host import Host

ENDLESS = {
    "loops": "import time\nwhile True:\n    try:\n        time.sleep(0.01)\n    except Exception:\n        pass\n",
    "waits": "import threading\n\nthreading.Event().wait()\n",
    "neighbour": "import beside\n",
}


def reference(path):
    Host(f"{path}:f", str(path.parent), os.memfd_create("answers"))


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(import_limit, "IMPORT_SECONDS", 0.3)


def test_a_service_has_less_patience(tmp_path, monkeypatch):
    monkeypatch.setenv(import_limit.SECONDS_VARIABLE, "0.2")
    (tmp_path / "endless.py").write_text("while True: pass\n")
    with pytest.raises(UsageError, match=r"does not end its import within 0\.2 s"):
        import_file(tmp_path / "endless.py")
    monkeypatch.setenv(import_limit.SECONDS_VARIABLE, "9999")
    assert import_limit.import_seconds() == import_limit.IMPORT_SECONDS


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("load", [import_file, reference, add_contract])
@pytest.mark.parametrize("name", ENDLESS)
def test_an_import_that_does_not_end_is_refused(tmp_path, load, name):
    path = tmp_path / f"{name}_{load.__name__}.py"
    path.write_text(ENDLESS[name].replace("beside", f"beside_{load.__name__}"))
    beside = tmp_path / f"beside_{load.__name__}.py"
    beside.write_text("while True: pass\n")
    if load is add_contract and name == "neighbour":
        pytest.skip("a contract stands alone")
    with pytest.raises(UsageError) as refused:
        load(path)
    at = f"line 1 of {beside}" if name == "neighbour" else f"of {path}"
    assert str(refused.value).startswith(f"{path} does not end its import within 0.3 s: it is still at line ")
    assert at in str(refused.value)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_call_that_does_not_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(import_limit, "CALL_SECONDS", 0.3)
    path = tmp_path / "calls.py"
    path.write_text("import numpy as np\ndef f(x: 'float32[n]'):\n    while True: pass\n")
    with pytest.raises(UsageError, match=r"small inputs does not end within 0.3 s: it is still at line 3 of "):
        reference(path)


@pytest.mark.usefixtures("short")
def test_an_alarm_that_is_set_already_is_left_alone():
    signal.setitimer(signal.ITIMER_REAL, 1000.0)
    try:
        with import_limit.import_limit(Path("mine.py")):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 999.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def test_what_loads_for_long_is_named(tmp_path, monkeypatch, caplog):
    for module in (import_limit, child, probing):
        monkeypatch.setattr(module, "NOTICE_SECONDS", 0.1)
    (tmp_path / "ref.py").write_text("import time\ntime.sleep(1)\ndef silent(x: 'float32[n]'):\n    return x\n")
    (tmp_path / "mine.py").write_text("import time\nOP = 'silu'\ntime.sleep(1)\ndef run(x):\n    return x\n")
    ReferenceProcess(f"{tmp_path}/ref.py:silent", tmp_path).close()
    with Examiner([user_subject(f"{tmp_path}/mine.py", ())]):
        pass
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for {tmp_path}/ref.py:silent to load, for 0.1 s so far; it is refused after 125 s",
        "waiting for silu/mine to load, for 0.1 s so far; it is refused after 100 s",
    ]
