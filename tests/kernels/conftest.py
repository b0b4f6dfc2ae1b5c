"""What the tests of CUDA C++ share."""

import pytest

from kernel_assay.kernels.backends.simt.toolchain import missing


@pytest.fixture(scope="session")
def simt_home(tmp_path_factory, emulator):
    """A cache folder for all tests, in whichever process: what the emulator itself needs takes seconds to build."""
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if base.name.startswith("popen-") else base) / "simt"
    home.mkdir(exist_ok=True)
    emulator(home)
    return home


@pytest.fixture(scope="module")
def simt_cache(simt_home):
    """CUDA C++ can be compiled, and what is compiled is kept in that folder."""
    if why := missing():
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(simt_home))
        yield simt_home / "kernel-assay" / "cuda"
