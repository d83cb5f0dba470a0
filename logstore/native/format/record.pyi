from logstore.types import Record as Record

FINGERPRINT: str
