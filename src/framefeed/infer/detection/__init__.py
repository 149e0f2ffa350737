"""Model outputs to boxes: input fitting, output layouts, non-maximum suppression."""
