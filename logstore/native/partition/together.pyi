# The function is typed by its Python twin, whose name it takes.
FINGERPRINT: str
