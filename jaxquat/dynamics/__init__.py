"""The rigid body: inertia, state, equations of motion, torques."""
