"""Other libraries, each used in the ways that its documentation recommends."""
