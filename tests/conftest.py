"""What all tests share: hypothesis draws the same examples on every run, and a first compilation may take its time."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("fixed")
