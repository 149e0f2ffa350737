"""Conversion of pictures to arrays: scaled, cropped and normalised."""
