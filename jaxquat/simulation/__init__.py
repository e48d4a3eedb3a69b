"""What a simulation is made of: its grid, its controller, the record of both, and its path."""
