"""The broker's security: TLS, principals, users, rules of access, and the audit log."""
