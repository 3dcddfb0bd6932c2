"""What tests against other libraries share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def referee(request, tmp_path_factory):
    """TensorFlow's Merger, loader and fingerprints; without them skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    from tests.interop.tensorflow.build import UnavailableError
    from tests.interop.tensorflow.referee import Referee

    cache = getattr(request.config, "cache", None)
    folder = Path(cache.mkdir("tensorflow")) if cache else tmp_path_factory.mktemp("tensorflow")
    try:
        found = Referee(folder)
    except UnavailableError as error:
        if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
            raise
        pytest.skip(str(error))
    yield found
    found.close()
