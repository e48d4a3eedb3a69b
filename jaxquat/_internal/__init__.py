"""What the rooms of the package share; nothing here is public."""
