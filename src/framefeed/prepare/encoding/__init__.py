"""One source video to its prepared files: format, timeline, encoding, remuxing, checks."""
