"""What a gyroscope measures, its recordings, and attitudes from its rates."""
