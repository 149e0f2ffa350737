"""Single questions, each answered by one script."""
