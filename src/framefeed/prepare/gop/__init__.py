"""GOP report: size and random-access cost of several keyframe distances."""
