"""Examples of the package, each one command; ``validation`` has what tests and benchmarks share."""
