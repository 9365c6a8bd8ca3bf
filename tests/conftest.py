"""What all tests share: float64, the same examples every time, and how many seeds a claim is checked on."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("fixed")


def pytest_addoption(parser):
    parser.addoption("--seeds", type=int, default=200, help="on how many seeds each check of a claim is run")


@pytest.fixture
def seeds(request):
    return request.config.getoption("seeds")


@pytest.fixture(autouse=True)
def float64():
    """Tensors made without a dtype are float64, as in the book; what a test sets is taken back."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """The last line of a run without a browser says what it did not test."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", ()) if reporter else ()
    left_out = sum("BROWSER=none" in str(report.longrepr) for report in skipped)
    if left_out:
        reporter.write_line(f"BROWSER=none: {left_out} tests of the pages in a browser were left out")
