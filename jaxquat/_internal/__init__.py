"""Code that the packages share; nothing here is public."""
