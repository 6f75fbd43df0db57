"""Differential privacy: budgets, noise, the questions that spend, and what may be expected of them."""
