"""Conversion on the CPU by libswscale."""
