"""Files of tensors as they come: every form is read, and a file that lies, or was cut off, is refused in a sentence."""

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from _command import refused
from _tensor_files import CODES, safetensors, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.comparing.compare import compare
from kernel_assay.fuzz.comparing.files import opened

ROOT = Path(__file__).resolve().parents[2]
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def read(place, raw=""):
    """All tensors of a place, read in pieces of three elements."""
    with ExitStack() as stack:
        (named,) = opened([Path(place)], raw, stack)
        return {
            name: np.concatenate([t.part(*span) for span in t.spans(3)] or [np.zeros(0, t.format.dtype)]).reshape(
                t.shape
            )
            for name, (t, _) in named.items()
        }


def values(dtype, shape=(3, 5)):
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return (numbers % 2 if dtype == "bool" else numbers).astype(dtype)


@pytest.mark.parametrize("dtype", CODES)
def test_every_type_of_safetensors(dtype):
    kind = getattr(ml_dtypes, dtype, dtype)
    x = values(kind)
    found = read(safetensors(Path("a.safetensors"), {"x": x, "none": x[:0], "one": x[1, 1].reshape(())}))
    assert {name: one.shape for name, one in found.items()} == {"none": (0, 5), "x": (3, 5), "one": ()}
    assert np.array_equal(found["x"].astype(np.float64), x.astype(np.float64))
    assert found["one"].astype(np.float64) == x[1, 1].astype(np.float64)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">i2", "|b1", "<u4", "<i8", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_type_and_order_of_npy(dtype, order):
    x = np.array(values(dtype), order=order)
    np.save("a.npy", x)
    assert np.array_equal(read("a.npy")["a"], x.astype(read("a.npy")["a"].dtype))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_are_read_in_pieces_and_again(save):
    save("a.npz", x=values("f4"), y=values("f2", (7,)), z=values("i4", ()), e=values("f4", (0, 2)))
    with ExitStack() as stack:
        (named,) = opened([Path("a.npz")], "", stack)
        x = named["x"][0]
        parts = [(0, 4), (4, 9), (2, 15), (12, 13)]
        assert all(np.array_equal(x.part(*p), values("f4").reshape(-1)[slice(*p)]) for p in parts)
    assert {name: one.shape for name, one in read("a.npz").items()} == {"x": (3, 5), "y": (7,), "z": (), "e": (0, 2)}


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_plain_elements_and_arrays_without_a_type(name):
    x = values(getattr(ml_dtypes, name))
    x.tofile("a.bin")
    np.save("a.npy", x)
    np.savez("a.npz", a=x)
    for place, raw in (("a.bin", f"{name}:3x5"), ("a.bin", name), ("a.npy", name), ("a.npz", name)):
        found = read(place, raw)["a"]
        assert np.array_equal(found.reshape(x.shape), x)


def test_a_folder_holds_names_and_files_that_share_them():
    for folder in ("a", "b"):
        Path(folder, "deep").mkdir(parents=True)
        safetensors(Path(folder, "m-1.safetensors"), {"x": values("f4")})
        safetensors(Path(folder, "m-2.safetensors"), {"y": values("f4")})
    assert set(read("a")) == {"x", "y"}
    np.save("b/deep/x.npy", values("f4"))
    assert set(read("b")) == {"m-1/x", "m-2/y", "deep/x/x"}
    found = compare(Path("a"), Path("b"))
    assert {one.name: one.trouble for one in found.tensors} == {"m-1/x": "", "m-2/y": "", "deep/x/x": "not in A"}


def test_links_in_a_folder(fuzz):
    """One to a file is that file, one to a folder is not followed, and one to nothing is not passed over."""
    Path("a/deep").mkdir(parents=True)
    np.save("x.npy", values("f4"))
    Path("a/x.npy").symlink_to(Path("x.npy").resolve())
    Path("a/deep/back").symlink_to("..")
    assert set(read("a")) == {"x"}
    for target in ("gone.npy", "lost.npy"):
        Path("a/lost.npy").symlink_to(target)
        refused(fuzz("compare", "a", "a"), "a/lost.npy: it is no plain file")
        Path("a/lost.npy").unlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read_is_not_passed_over(fuzz):
    Path("a/deep").mkdir(parents=True)
    np.save("a/x.npy", values("f4"))
    Path("a/deep").chmod(0)
    refused(fuzz("compare", "a", "a"), "a/deep cannot be read (Permission denied)")
    Path("a/deep").chmod(0o700)
    Path("a").chmod(0)
    refused(fuzz("compare", "a/x.npy", "a/x.npy"), "a/x.npy cannot be read (Permission denied)")
    Path("a").chmod(0o700)


HEADER = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def changed(**changes):
    return {"x": HEADER["x"] | changes}


@pytest.mark.parametrize(
    ("header", "word"),
    [
        (changed(data_offsets=[0, 12]), "takes 8 bytes"),
        (changed(data_offsets=[8, 0]), "takes 8 bytes"),
        (changed(data_offsets=[-8, 0]), "no shape, dtype and place"),
        (changed(data_offsets=[4, 12]), "overlap, or lie beyond"),
        (changed(data_offsets=[1 << 70, (1 << 70) + 8]), "overlap, or lie beyond"),
        (changed(shape=[1 << 80]), "takes"),
        (changed(shape=[-2]), "no shape"),
        (changed(shape=[True, 2]), "no shape"),
        (changed(shape=[1] * 65 + [2]), "axes"),
        (changed(shape=2), "no shape"),
        (changed(dtype="F4"), "type F4"),
        (HEADER | {"y": HEADER["x"]}, "overlap"),
        ({"x": 1}, "no shape"),
        ({}, "holds no tensors"),
        ([1], "no JSON object"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"x": 1, "x": 2}', "twice"),
        ({"a\x1b[31mb": HEADER["x"]}, "cannot be printed"),
        (b'{"\\ud800": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', "cannot be printed"),
    ],
)
def test_a_header_that_lies_is_refused(fuzz, header, word):
    written(Path("a.safetensors"), HEADER, bytes(8))
    written(Path("lies.safetensors"), header, bytes(8))
    refused(fuzz("compare", "a.safetensors", "lies.safetensors"), "lies.safetensors: ", word)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a.npy", "none.npy"), "none.npy does not exist"),
        (("a.npy", "a.npy/none"), "a.npy/none does not exist"),
        (("a.npy", "loop.npy"), "loop.npy cannot be read (Too many levels of symbolic links)"),
        (("a.npy", "n" * 5000), "n... cannot be read (File name too long)"),
        (("", ""), "is a variable not set?"),
        (("a.npy", "a.npy", "--truth", ""), "is a variable not set?"),
        (("a.npy", "a.npy", "--factor", "3"), "--factor is for --truth"),
        (("a.npy", "."), "folder"),
        (("a.npy", "pipe.npy"), "no plain file"),
        (("a.npy", "a.txt"), "--raw"),
        (("a.npy", "a.txt", "--raw", "float31"), "float31"),
        (("a.npy", "a.txt", "--raw", "f32:3x-1"), "no shape"),
        (("a.npy", "a.txt", "--raw", "f32:3xx"), "no shape"),
        (("a.npy", "a.txt", "--raw", "f32:1x2"), "takes 8 bytes, but there are 5"),
        (("a.npy", "a.txt", "--raw", "f32"), "its 5 bytes are no whole number of elements of float32"),
        (("a.npy", "objects.npy"), "object"),
        (("a.npy", "untyped.npy"), "--raw bfloat16"),
        (("a.npy", "void.npy"), "elements of 3 bytes and not their type; no known type has so many"),
        (("a.npy", "complex.npy"), "complex64"),
        (("a.npy", "a.npy", "--dtype", "int8"), "no float type"),
        (("a.npy", "a.npy", "--dtype", "bf17"), "bf17"),
        (("a.npy", "a.npy", "--logits", "y*"), "'y*'"),
        (("a.npy", "a.npy", "--truth", "a.npy", "--ulp", "1"), "--factor"),
        (("fine.npy", "fine.npy", "--truth", "a.npy"), "coarser"),
        (("empty", "empty"), "no file of tensors"),
        (("large.npy", "large.npy"), "2**63"),
        (("a.npy", "a.npy", "--json", "no/where.json"), "cannot be written"),
        (("a.npy", "a.npy", "--ulp", "-1"), "--ulp"),
    ],
)
def test_what_cannot_be_compared_is_refused(fuzz, words, said):
    np.save("a.npy", values("f4"))
    np.save("fine.npy", values("f8"))
    np.save("objects.npy", np.array([None]), allow_pickle=True)
    np.save("untyped.npy", values(ml_dtypes.bfloat16))
    np.save("complex.npy", values("c8"))
    np.save("large.npy", np.array([1 << 63], np.uint64))
    np.save("void.npy", np.zeros(2, "V3"))
    Path("loop.npy").symlink_to("loop.npy")
    Path("a.txt").write_bytes(b"abcde")
    Path("empty").mkdir()
    os.mkfifo("pipe.npy")
    refused(fuzz("compare", *words), said)


def sound_files():
    """One file of each form that is read here, by its suffix."""
    np.save("s.npy", values("f4"))
    np.savez("s.npz", x=values("f4"), y=values("f2"))
    np.savez_compressed("c.npz", x=values("f4"))
    safetensors(Path("s.safetensors"), {"x": values("f4"), "y": values("f2")})
    return ["s.npy", "s.npz", "c.npz", "s.safetensors"]


@quick
@given(data=st.data())
def test_whatever_was_damaged_is_read_or_refused(data):
    name = data.draw(st.sampled_from(sound_files()))
    content = bytearray(Path(name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    torn = Path(f"torn{Path(name).suffix}")
    torn.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    with contextlib.suppress(UsageError):
        assert compare(Path(name), torn).plain()


@pytest.mark.parametrize("name", ["s.npy", "s.npz", "c.npz", "s.safetensors"])
def test_what_was_cut_off_is_refused(fuzz, name):
    sound_files()
    content = Path(name).read_bytes()
    torn = Path(f"torn{Path(name).suffix}")
    for length in (0, 4, len(content) // 2, len(content) - 1):
        torn.write_bytes(content[:length])
        refused(fuzz("compare", name, torn), f"{torn}: ")


def test_an_array_in_an_archive_that_lies_about_its_shape(fuzz):
    np.save("x.npy", values("f4"))
    content = Path("x.npy").read_bytes().replace(b"(3, 5)", b"(9, 9)")
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("x.npy", content)
    refused(fuzz("compare", "a.npz", "a.npz"), "a.npz: x: ", "takes 324 bytes")


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_files_of_torch(fuzz):
    """A file of tensors is read; one that would run code is refused, and runs none."""
    torch = pytest.importorskip("torch")
    x = torch.arange(15.0).reshape(3, 5)
    torch.save({"x": x, "in": [x.T, x.bfloat16()], "n": torch.tensor(3), "step": 7}, "a.pt")
    found = read("a.pt")
    assert {name: one.shape for name, one in found.items()} == {"x": (3, 5), "in.0": (5, 3), "in.1": (3, 5), "n": ()}
    assert all(
        np.array_equal(one.astype(np.float32), x.T if name == "in.0" else x)
        for name, one in found.items()
        if name != "n"
    )
    np.savez("fine.npz", **{name: one.astype(np.float64) for name, one in found.items()})
    assert compare("a.pt", "fine.npz").agrees
    torch.save({"x": torch.ones(2, dtype=torch.complex64).conj().imag}, "negative.pt")
    assert np.array_equal(read("negative.pt")["x"], [0, 0])
    torch.save({"a.b": x, "a": {"b": x}}, "twice.pt")
    refused(fuzz("compare", "twice.pt", "twice.pt"), "twice.pt: two of its tensors are called 'a.b'")
    torch.save({"x": Bomb()}, "bomb.pt")
    refused(fuzz("compare", "bomb.pt", "bomb.pt"), "bomb.pt: ", "is not loaded")
    assert not Path("exploded").exists()
    Path("junk.pt").write_bytes(b"junk")
    refused(fuzz("compare", "junk.pt", "junk.pt"), "junk.pt: ")


SPARSE = 1 << 30
PROGRAM = """
import resource
from pathlib import Path
from kernel_assay.fuzz.comparing.compare import compare
compare(Path("small.safetensors"), Path("small.safetensors"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = compare(Path("a.safetensors"), Path("b.safetensors"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, found.tensors[0].distance.differing)
"""


def test_memory_stays_flat_however_large_a_file_is():
    for name in ("a", "b"):
        header = {"x": {"dtype": "F32", "shape": [SPARSE // 4], "data_offsets": [0, SPARSE]}}
        path = written(Path(f"{name}.safetensors"), header)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size + SPARSE)
            if name == "b":
                file.seek(-4, os.SEEK_END)
                file.write(b"\0\0\x80?")
    safetensors(Path("small.safetensors"), {"x": values("f4")})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grown, differing = map(int, done.stdout.split())
    assert grown < 160_000, "kilobytes"
    assert differing == 1


def test_json_of_what_was_found(fuzz):
    np.save("a.npy", values("f4"))
    np.save("b.npy", -values("f4"))
    code, out, _ = fuzz("compare", "a.npy", "b.npy", "--json", "-")
    found = json.loads(out)
    assert (code, found["agrees"], found["tensors"][0]["distance"]["differing"]) == (1, False, 14)
