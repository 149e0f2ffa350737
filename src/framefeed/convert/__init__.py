"""Pictures to arrays: scaled, cropped, normalised, converted."""
