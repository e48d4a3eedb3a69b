"""The exact motion of a free rigid body in closed form, differentiable, at one time.

E. T. Whittaker, Analytical Dynamics of Particles and Rigid Bodies, 4th ed. 1937, 69-71; L. D.
Landau and E. M. Lifshitz, Mechanics, 3rd ed. 1976, 35-37; R. van Zon and J. Schofield, J. Comput.
Phys. 225, 2007, 145-164 (attitude of the free asymmetric body).
"""

from __future__ import annotations

from jaxquat.exact.free import free_body

__all__ = ["free_body"]
