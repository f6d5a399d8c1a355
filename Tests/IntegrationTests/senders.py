"""Sends events with the unmodified SDK of another vendor, each with a mark, and prints the marks that it could not send.

senders.py SDK PORT KEY FIRST COUNT
"""

import sys

sdk, port, key, first, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
host = "http://127.0.0.1:" + port


def failed(error, batch):
    for event in batch:
        print("lost", event["properties"]["mark"], error)


if sdk == "segment":
    import segment.analytics as client

    client.host = host
elif sdk == "rudder":
    import rudderstack.analytics as client

    client.dataPlaneUrl = host

client.write_key = key
client.on_error = failed
client.max_retries = 10
for mark in range(first, first + count):
    client.track("user-%d" % (mark % 7), "order_viewed", {"mark": mark, "list": [mark, {"a": "ü"}]})
client.flush()
client.shutdown()
print("done")
