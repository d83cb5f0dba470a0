"""Code generated from proto/, checked in and never edited; .ci/run proves that it is up to date."""
