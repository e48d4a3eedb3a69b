"""A rollout: its grid, its controller, the Simulation record, the engines, and its path."""
