import pytest
from cuda_shim import CXX, Shim

from kernels.cuda import launch


@pytest.fixture
def shim(monkeypatch: pytest.MonkeyPatch) -> Shim:
    """Lets every launch of this test run the kernel's source on the CPU."""
    if CXX is None:
        pytest.skip("no C++ compiler")
    shim = Shim()
    monkeypatch.setattr(launch, "run_on_device", lambda *call: shim.run_on_cpu(*call))
    return shim
