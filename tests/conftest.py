"""Choose how hard hypothesis tries: the same examples each time in CI, fresh ones at a desk."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile(
    "ci", derandomize=True, max_examples=200, deadline=None, print_blob=True, database=None
)
settings.register_profile("default", max_examples=50, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")
