"""The bytes of one video, and the one place that opens it with FFmpeg."""
