"""The client API: one producer, one consumer and one admin over any ``Backend``."""
