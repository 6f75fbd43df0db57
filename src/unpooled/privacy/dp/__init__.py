"""Differential privacy: budgets, noise, private questions, and forecasts of their results."""
