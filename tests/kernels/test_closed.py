"""Kernels are closed in: what they try on the corpus, the tool, its processes and the network fails."""

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.process.child import HOME, command_of, handed
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.kernels.sandbox import closing
from kernel_assay.kernels.sandbox.closing import enclosure_of
from kernel_assay.kernels.worker.enclosure import PROCESSES, Enclosure

CASE = Case(op="silu", tensors={"x": TensorRecipe(shape=(3, 5), dtype="float32")})
OTHER = Case(op="silu", tensors={"x": TensorRecipe(shape=(2, 7), dtype="float32")})
PEER = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
pytestmark = [
    pytest.mark.usefixtures("own_zygotes"),
    pytest.mark.skipif(bool(closing.why_open()), reason=closing.why_open() or "closed"),
]

RIGHT = "    w = x.astype(np.float64)\n    out[...] = w / (1 + np.exp(-w))\n"
HEAD = 'import os\nimport shutil\nimport socket\nimport sys\nimport time\nimport numpy as np\nOP = "silu"\n'
SEEN = {
    "the oracles' source": "[p for p in os.listdir({oracles!r}) if p.endswith('.py')]",
    "the oracles as a module": "__import__('kernel_assay.oracles.judging.judge').__file__",
    "the corpus": "os.listdir({corpus!r} + '/local')",
    "the memory of the supervisor": "open('/proc/{pid}/mem', 'rb').fileno()",
    "the environment of the supervisor": "open('/proc/{pid}/environ', 'rb').read()",
    "other processes": "[p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]",
    "a port of this machine": "socket.create_connection(('127.0.0.1', {port}), 2).fileno()",
    "an abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0kernel-assay-{pid}') or 'connected'",
    "shared memory of others": "[p for p in os.listdir('/dev/shm') if p == 'kernel-assay-{pid}']",
    "the machine's disks": "[p for p in os.listdir('/dev') if p.startswith(('vd', 'sd', 'nvme', 'mem', 'kmsg'))]",
    "a setting of the machine": "open('/proc/sys/kernel/pid_max', 'a').fileno()",
    "a file beside it": "open(os.path.dirname(__file__) + '/mark', 'w').write('x')",
    "more processes than it may have": "fork_many({many})",
}
"""What is seen, or done -> an expression that is true then, and raises or is false otherwise."""
MANY = """

def fork_many(most):
    made = 0
    try:
        for made in range(most):
            if not os.fork():
                time.sleep(60)
                os._exit(0)
    except OSError:
        return 0
    return made
"""


@pytest.fixture
def subject(tmp_path):
    def make(name, body, head=""):
        path = tmp_path / f"{name}.py"
        path.write_text(f"{HEAD}{head}\n\ndef run(out, x):\n{body}{RIGHT}")
        return user_subject(str(path), ())

    return make


@pytest.fixture
def tries(tmp_path, notes, subject, monkeypatch):
    """Told what a kernel tries: what came of it; it must pass, and so must the one beside it."""
    shm = Path(f"/dev/shm/kernel-assay-{os.getpid()}")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0kernel-assay-{os.getpid()}")
        abstract.listen()
        shm.write_text("")
        names = {
            "oracles": str((HOME / "kernel_assay" / "oracles").resolve()),
            "corpus": str(tmp_path / "corpus"),
            "pid": os.getpid(),
            "port": server.getsockname()[1],
            "many": PROCESSES + 100,
        }

        def tried(expression, *, closed=True):
            body = (
                f"    try:\n        seen = str({expression.format(**names)} or '')\n"
                "    except Exception as error:\n        seen = ''\n"
                f"    open({str(notes / 'seen')!r}, 'w').write(seen)\n"
            )
            odd = subject("odd", body, MANY)
            with Store(tmp_path / "corpus") as store:
                store.prepare()
                with Examiner([odd, PEER], closed=closed, timeout=20.0) as examiner:
                    verdicts = examiner.check([CheckRequest(CASE, (odd.key, PEER.key))])[0].verdicts
            assert verdicts[PEER.key].kind is Kind.PASS
            assert verdicts[odd.key].kind in {Kind.PASS, Kind.CHEATED}, "to try may be an offence"
            return (notes / "seen").read_text()

        yield tried
        shm.unlink()


@pytest.mark.parametrize("what", SEEN)
def test_it_neither_sees_nor_reaches(what, tries):
    assert not tries(SEEN[what])


@pytest.mark.parametrize("what", [what for what in SEEN if "processes" not in what])
def test_in_the_open_it_sees_and_reaches(what, tries):
    """Else the test above could not fail. What processes there are to see depends on the system."""
    if what == "the machine's disks" and not any(Path("/dev").glob("[vs]d*")):
        pytest.skip("it has none")
    if what == "a setting of the machine" and os.getuid() != 0:
        pytest.skip("that is for root")
    assert tries(SEEN[what], closed=False)


@pytest.mark.parametrize(
    "harm",
    [
        "shutil.rmtree({corpus!r}, ignore_errors=True)",
        "[os.unlink(os.path.join(f, n)) for f, _, names in os.walk({corpus!r}) for n in names]",
        "open({source!r}, 'a').write('# intruder')",
        "os.kill(-1, 9)",
        "os.kill(1, 9)",
        "os.rename({corpus!r}, {corpus!r} + '-gone')",
        "os.chmod({corpus!r}, 0)",
        "os.killpg({pid}, 9)",
    ],
)
def test_it_harms_nobody(harm, subject, tmp_path):
    """Its own process lives, and so does that of whoever runs after it."""
    source = tmp_path / "tool.py"
    source.write_text("as it was")
    (tmp_path / "corpus" / "regressions" / "silu").mkdir(parents=True)
    kept = tmp_path / "corpus" / "regressions" / "silu" / "kept.json"
    kept.write_text("{}")
    names = {"corpus": str(tmp_path / "corpus"), "source": str(source), "pid": os.getpid()}
    odd = subject("odd", f"    try:\n        {harm.format(**names)}\n    except OSError:\n        pass\n")
    with Store(tmp_path / "corpus") as store, Examiner([odd, PEER]) as examiner:
        store.prepare()
        for case in (CASE, OTHER):
            verdicts = examiner.check([CheckRequest(case, (odd.key, PEER.key))])[0].verdicts
            assert {v.kind for v in verdicts.values()} == {Kind.PASS}
        assert examiner.sandbox.deaths == 0
    assert source.read_text() == "as it was"
    assert kept.read_text() == "{}"


def test_what_it_has_started_ends_with_its_worker(subject):
    """Whatever session it is in, and however many forks away."""
    name = f"6{os.getpid()}"
    lines = [
        "if not os.fork():",
        "    os.setsid()",
        "    if os.fork():",
        "        os._exit(0)",
        f"    os.execlp('sleep', 'sleep', '{name}')",
        "os.wait()",
    ]
    odd = subject("odd", "".join(f"    {line}\n" for line in lines))
    with Examiner([odd]) as examiner:
        assert examiner.check([CheckRequest(CASE, (odd.key,))])[0].verdicts[odd.key].kind is Kind.PASS
        deadline = time.monotonic() + 5
        while not sleepers(name) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sleepers(name)
    assert not sleepers(name)


def sleepers(name):
    """Processes that sleep for so long."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [place] * (place.read_bytes() == f"sleep\0{name}\0".encode())
    return found


HONEST = {
    "writes a temporary file": "    from tempfile import TemporaryFile\n    TemporaryFile().write(x.tobytes())\n",
    "leaves a file where it is": "    open('left', 'w').write('x')\n",
    "imports its neighbour": "    from neighbour import ONE\n    assert ONE == 1\n",
    "has a thread and a process": (
        "    import subprocess, threading\n    subprocess.run(['true'], check=True)\n"
        "    t = threading.Thread(target=print)\n    t.start()\n    t.join()\n"
    ),
    "shares memory": (
        "    from multiprocessing.shared_memory import SharedMemory\n    m = SharedMemory(create=True, size=64)\n"
        "    m.close()\n    m.unlink()\n"
    ),
    "names its thread": "    open('/proc/self/task/%d/comm' % os.getpid(), 'w').write('kernel')\n",
    "reads what it is": "    open('/proc/self/maps').read()\n    open('/dev/null', 'w').write('x')\n",
}


@pytest.mark.parametrize("what", HONEST)
def test_an_honest_kernel_passes(what, subject, tmp_path):
    (tmp_path / "neighbour.py").write_text("ONE = 1\n")
    head = "sys.path.append(os.path.dirname(__file__))\n"
    honest = subject("honest", HONEST[what], head)
    with Examiner([honest]) as examiner:
        verdict = examiner.check([CheckRequest(CASE, (honest.key,))])[0].verdicts[honest.key]
    assert verdict.kind is Kind.PASS, verdict.message


def test_a_built_in_kernel_of_every_backend_passes_with_new_caches(tmp_path, monkeypatch, emulator):
    emulator(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    all_of_them = [s for s in subjects_of("silu") if not loader_of(s.loader).unavailable() and not s.planted]
    subjects = [*{s.loader: s for s in all_of_them}.values()]
    with Examiner(subjects, timeout=60.0) as examiner:
        verdicts = examiner.check([CheckRequest(CASE, tuple(s.key for s in subjects))])[0].verdicts
    assert {v.kind for v in verdicts.values()} <= {Kind.PASS, Kind.UNSUPPORTED}
    if any(s.backend == "cuda" for s in subjects):
        assert list((tmp_path / "kernel-assay" / "cuda").glob("*-fast.so")), "what was compiled there is kept"


REFUSING = """
from kernel_assay.kernels.worker import enclosure

def _call(*_, **__):
    raise PermissionError(1, "no namespaces on this machine")

enclosure._call = _call
"""


@pytest.fixture
def refusing(tmp_path, monkeypatch):
    """A system that allows nothing of it."""
    (tmp_path / "sitecustomize.py").write_text(REFUSING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(HOME)]), prepend=os.pathsep)


def test_where_the_system_refuses_it_runs_in_the_open_and_says_so(refusing, subject):
    right = subject("right", "")
    with Examiner([right, PEER]) as examiner:
        assert "no namespaces on this machine" in examiner.sandbox.pool.why_open
        verdicts = examiner.check([CheckRequest(CASE, (right.key, PEER.key))])[0].verdicts
    assert {v.kind for v in verdicts.values()} == {Kind.PASS}
    assert "no namespaces on this machine" in closing.why_open()


@pytest.mark.parametrize("harm", ["os.kill(os.getppid(), 9)\n    time.sleep(1)", "os.closerange(3, 64)"])
def test_in_the_open_it_dies_alone(harm, subject):
    odd = subject("odd", f"    {harm}\n")
    with Examiner([odd, PEER], closed=False, timeout=2.0) as examiner:
        verdicts = examiner.check([CheckRequest(CASE, (odd.key, PEER.key))])[0].verdicts
        assert examiner.sandbox.pool.why_open == closing.ASKED
    assert (verdicts[odd.key].kind, verdicts[PEER.key].kind) == (Kind.CRASHED, Kind.PASS)


@pytest.mark.skipif(os.getuid() != 0, reason="who runs this is an ordinary user")
def test_an_ordinary_user_is_closed_in_too(tmp_path):
    """As root without rights, who may read where Python is."""
    settings = handed({"scratch": str(tmp_path), "megabytes": 16})
    words = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *command_of(closing.TRIAL, str(settings))]
    said = subprocess.run(words, capture_output=True, check=False, pass_fds=(settings,))
    os.close(settings)
    assert (said.stdout, said.returncode) == (b"", 0), said.stderr


def test_a_folder_that_cannot_be_made_is_no_obstacle(tmp_path):
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "cache")
    assert Enclosure(str(tmp_path), 16, writable=(folder,), hidden=(folder,)).refusal() == ""


def test_the_trial_leaves_this_process_as_it_was(tmp_path):
    before = spaces()
    assert Enclosure(str(tmp_path), 16).refusal() == ""
    assert spaces() == before
    assert not list(tmp_path.iterdir())


def spaces():
    return sorted(str(place.readlink()) for place in Path("/proc/self/ns").iterdir())


def test_the_judge_of_another_copy_of_this_tool_is_hidden_too(tmp_path, monkeypatch):
    """As where one is installed, and another one is a checkout."""
    (tmp_path / "kernel_assay" / "oracles").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert str(tmp_path / "kernel_assay" / "oracles") in enclosure_of(tmp_path, 64, {})["hidden"]
