"""Differential privacy: budgets, noise, the questions that spend, and forecasts of their results."""
