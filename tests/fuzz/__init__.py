"""A fuzzer of the fused engine."""
