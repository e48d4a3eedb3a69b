"""What a kernel runs on."""
