"""What all tests share: the examples of hypothesis, and four devices.

Hypothesis draws the same examples on every run, and a first compilation may take its time.
"""

from __future__ import annotations

import hypothesis
import jax

hypothesis.settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("fixed")

# Four devices on any machine, for the tests that compare device counts. Started here, since a test of the command line
# would otherwise start as many as there are cores.
jax.config.update("jax_num_cpu_devices", 4)
assert len(jax.devices("cpu")) == 4
