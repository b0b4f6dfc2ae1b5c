import subprocess

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service.work import checkouts as module
from kernel_assay.fuzz.service.work.checkouts import Checkouts


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number in range(3):
        (folder / "kernel.py").write_text(f"NUMBER = {number}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", str(number))
    return folder


@pytest.fixture
def here(tmp_path):
    return Checkouts(tmp_path / "clones", allow_local=True)


def test_unpacks_a_commit_and_lists_those_before(here, repository, tmp_path):
    names = git(repository, "rev-list", "--reverse", "main").split()
    first = here.files(str(repository), names[0][:10], tmp_path)
    last = here.files(str(repository), names[2], tmp_path)
    assert (first / "kernel.py").read_text() == "NUMBER = 0\n"
    assert (last / "kernel.py").read_text() == "NUMBER = 2\n"
    assert here.history(str(repository))("", names[2]) == names
    assert here.history(str(repository))(names[1], names[2]) == names[1:]
    with pytest.raises(UsageError, match="no commit before"):
        here.history(str(repository))(names[2], names[0])
    with pytest.raises(UsageError, match="has no commit"):
        here.files(str(repository), "0" * 40, tmp_path)


def test_a_commit_that_came_later_is_fetched(here, repository, tmp_path):
    here.files(str(repository), git(repository, "rev-parse", "main"), tmp_path)
    (repository / "kernel.py").write_text("NUMBER = 9\n")
    git(repository, "commit", "-qam", "later")
    later = here.files(str(repository), git(repository, "rev-parse", "main"), tmp_path)
    assert (later / "kernel.py").read_text() == "NUMBER = 9\n"


def test_nothing_of_a_repository_runs_or_leads_out_of_it(here, repository, tmp_path):
    (repository / "out").symlink_to("/etc")
    (repository / "beside").symlink_to("kernel.py")
    (repository / ".gitattributes").write_text("* filter=evil\n")
    git(repository, "config", "filter.evil.smudge", f"touch {tmp_path}/ran; cat")
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "inner")
    git(repository, "submodule", "add", "-q", str(inner), "inner")
    for hook in ("post-checkout", "reference-transaction"):
        (repository / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (repository / ".git" / "hooks" / hook).chmod(0o755)
    git(repository, "add", "-A")
    git(repository, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "links")
    (tmp_path / "ran").unlink(missing_ok=True)
    files = here.files(str(repository), git(repository, "rev-parse", "main"), tmp_path)
    assert not (files / "out").exists()
    assert (files / "beside").read_text() == "NUMBER = 2\n"
    assert not list((files / "inner").iterdir())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("repository", "said"),
    [
        ("/etc", "is a path"),
        ("file:///etc", "is a path"),
        ("../x", "whole path"),
        ("--upload-pack=touch /tmp/x", "whole path"),
        ("javascript:alert(1)", "has a scheme"),
        ("git@-oProxyCommand=x:y", "has a scheme|whole path"),
        ("file://host/x", "whole path"),
        ("ext::sh -c touch% /tmp/x", "has a scheme"),
        ("http://example.org/x", "has a scheme"),
        ("git://example.org/x", "has a scheme"),
        ("https://user:word@example.org/x", "password"),
        ("ssh://-oProxyCommand=x/y", "names no host"),
        ("https:///x", "names no host"),
        ("https://example.org:99999/x", "address is none"),
        ("https://[", "address is none"),
    ],
)
def test_refuses_what_is_no_repository_of_the_outside(tmp_path, repository, said):
    with pytest.raises(UsageError, match=said):
        Checkouts(tmp_path / "clones").files(repository, "0" * 40, tmp_path)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "::1", "fe80::1", "::ffff:10.0.0.1", "0.0.0.0"],
)
def test_refuses_addresses_of_inner_networks(tmp_path, monkeypatch, address):
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 443))])
    with pytest.raises(UsageError, match="inner network"):
        Checkouts(tmp_path / "clones").files("https://git.example.org/x", "0" * 40, tmp_path)


def test_refuses_a_nul_in_an_address(tmp_path, monkeypatch):
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("93.184.216.34", 443))])
    with pytest.raises(UsageError, match="characters that no address has"):
        Checkouts(tmp_path / "clones").files("https://git.example.org/a\0b", "0" * 40, tmp_path)


@pytest.mark.parametrize("address", ["git@git.example.org:org/repo.git", "git.example.org:org/repo.git"])
def test_takes_an_address_as_scp_writes_it_by_the_same_checks(tmp_path, monkeypatch, address):
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("93.184.216.34", 22))])
    url, config = Checkouts(tmp_path)._allowed(address)
    assert url == f"ssh://{address.replace(':', '/')}"
    assert "-oHostName=93.184.216.34 -oHostKeyAlias=git.example.org" in config["core.sshCommand"]
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("10.0.0.1", 22))])
    with pytest.raises(UsageError, match="inner network"):
        Checkouts(tmp_path)._allowed(address)


def test_asks_the_address_that_was_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("93.184.216.34", 443))])
    _, config = Checkouts(tmp_path)._allowed("https://git.example.org/x")
    assert config["http.curloptResolve"] == "git.example.org:443:93.184.216.34"


def test_git_is_ended_when_it_takes_too_long_or_gets_too_large(here, repository, tmp_path, monkeypatch):
    commit = git(repository, "rev-parse", "main")
    monkeypatch.setattr(module, "MOST_MB", 0)
    with pytest.raises(UsageError, match="more than 0 MB"):
        here.files(str(repository), commit, tmp_path)
    monkeypatch.undo()

    def impatient():
        raise UsageError("cancelled")

    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UsageError, match="cancelled"):
        Checkouts(tmp_path / "others", allow_local=True).files(str(repository), commit, tmp_path, impatient)
    with pytest.raises(UsageError, match="took more than 0 s"):
        here._git(tmp_path, "log", seconds=0.1)
