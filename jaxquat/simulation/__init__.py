"""The parts of a simulation: its grid, its controller, the Simulation record, and its path."""
