"""Sample clips, a fake decoder and a detector of painted shapes."""
