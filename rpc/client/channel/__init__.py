"""How a client reaches one broker: settings, trust, credentials, calls with deadlines."""
