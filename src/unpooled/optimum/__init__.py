"""The best clustering there is: the exact solver, lower bounds, and certificates from totals only."""
