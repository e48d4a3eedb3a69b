"""Errors planted on purpose, to show that the fuzzer finds them."""

PLANTED = {}
