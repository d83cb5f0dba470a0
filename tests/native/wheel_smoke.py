"""Run by cibuildwheel with a wheel just built and installed: its compiled core is in use, and records come back.

It runs outside the tree: what it imports is the wheel's. It uses nothing but the library.
"""

import logstore

status = logstore.native_status()
if not status.compiled:
    raise SystemExit(str(status))
with logstore.open(":memory:") as store:
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_many("t", [(b"key", b"value", [("name", b"content")])] * 3).result(timeout_s=30)
    with store.consumer("t", group="g", until_end=True) as consumer:
        found = [(record.key, record.value, record.headers) for record in consumer]
if found != [(b"key", b"value", (("name", b"content"),))] * 3:
    raise SystemExit(f"not the records that were sent: {found}")
