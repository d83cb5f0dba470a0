"""The ``Backend`` of this process: the client's calls on the store's own topics."""
