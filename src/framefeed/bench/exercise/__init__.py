"""The exercise: batches of frames of 200 files, drawn and read in the ways that people try one after the other."""
