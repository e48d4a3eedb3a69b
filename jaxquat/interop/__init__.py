"""Bridges to other libraries, each with an extra of its name; nothing here is imported by ``import jaxquat``."""
