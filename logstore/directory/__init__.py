"""The store's folder: its catalogue, states, partition folders, names of producers, deletion and backup."""
