"""What was asked of the speed and the quality, and what was reached: ``python -m benchmarks``."""
