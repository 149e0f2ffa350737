"""The statistics and the cost of orders, measured on a training task."""
