# The classes are typed by their Python twins, whose names they take.
FINGERPRINT: str
