"""What crosses the line between clients and engines: the ``Backend`` protocol and its values."""
