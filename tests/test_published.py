"""The scores that others published, where their data are beside this checkout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT

RECORDING = ROOT.parent / "shared" / "data" / "broad" / "02_undisturbed_slow_rotation_B.npz"


@pytest.mark.slow
@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize(
    ("name", "published"),
    [("madgwick", (1.49682, 1.26374, 0.80217)), ("mahony", (2.96620, 2.89089, 0.66419))],
)
def test_filters_have_the_scores_that_broad_published(name, published):
    """Total, heading and inclination [deg]; the published programs run in single precision."""
    if not RECORDING.exists():
        pytest.skip("BROAD is not beside this checkout: download it, doi 10.3390/data6070072")
    from examples.validation import broad

    recording = jax.tree.map(jnp.float64, broad.example.read(RECORDING))
    np.testing.assert_allclose(broad.scored(name, True, *recording), published, rtol=0, atol=1e-3)
    assert np.abs(broad.scored(name, False, *recording) - np.array(published)).max() > 0.1
