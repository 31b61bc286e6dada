import pytest
from cuda_shim import Shim

from fastweights.kernels.cuda import launch


@pytest.fixture
def shim(monkeypatch: pytest.MonkeyPatch) -> Shim:
    """Run the source of every kernel that this test launches on the CPU."""
    shim = Shim()
    monkeypatch.setattr(launch, "run_on_device", lambda *call: shim.run_on_cpu(*call))
    return shim
