"""One module per command: ``add_parser`` declares the arguments, ``run`` calls the public API."""
