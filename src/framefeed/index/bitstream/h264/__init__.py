"""H.264: classification of packets, parsing of headers, and the format of pictures."""
