"""Exercise: statistics and cost of orders, measured on a training task."""
