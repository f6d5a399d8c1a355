"""Sends events with the unmodified SDK of another vendor, each with a mark, and prints the marks that it could not send.

senders.py SDK PORT KEY FIRST COUNT
"""

import sys

sdk, port, key, first, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
host = "http://127.0.0.1:" + port


def failed(error, batch):
    for event in batch:
        print("lost", event["properties"]["mark"], error)


def with_segments_interface(client):
    client.write_key = key
    client.on_error = failed
    client.max_retries = 10
    for mark in range(first, first + count):
        client.track(user(mark), "order_viewed", properties(mark))
    client.flush()
    client.shutdown()


def user(mark):
    return "user-%d" % (mark % 7)


def properties(mark):
    return {"mark": mark, "list": [mark, {"a": "ü"}]}


if sdk == "segment":
    import segment.analytics as client

    client.host = host
    with_segments_interface(client)
elif sdk == "rudder":
    import rudderstack.analytics as client

    client.dataPlaneUrl = host
    with_segments_interface(client)
elif sdk == "posthog":
    from posthog import Posthog

    # The key stands in its body alone, as Amplitude's.
    client = Posthog(key, host=host, on_error=failed, max_retries=10, gzip=True)
    for mark in range(first, first + count):
        client.capture("order_viewed", distinct_id=user(mark), properties=properties(mark))
    client.flush()
    client.shutdown()
elif sdk == "mixpanel":
    from mixpanel import BufferedConsumer, Mixpanel, MixpanelException

    places = {"events_url": host + "/track", "people_url": host + "/engage", "groups_url": host + "/groups"}
    consumer = BufferedConsumer(max_size=50, **places)
    client = Mixpanel(key, consumer=consumer)

    def kept(call, *parameters):
        # Over plain http it tries once and keeps what it could not send for its next flush.
        for _ in range(100):
            try:
                return call(*parameters)
            except MixpanelException:
                call, parameters = consumer.flush, ()

    for mark in range(first, first + count):
        kept(client.track, user(mark), "order_viewed", properties(mark))
    kept(consumer.flush)
elif sdk == "amplitude":
    import threading
    import time

    from amplitude import Amplitude, BaseEvent, Config

    lock = threading.Lock()
    ended = []

    def answered(event, code, message=None):
        with lock:
            ended.append(event)
        if code != 200:
            print("lost", event.event_properties["mark"], code, message)

    client = Amplitude(key, Config(server_url=host + "/2/httpapi", flush_queue_size=100, callback=answered))
    for mark in range(first, first + count):
        client.track(BaseEvent(event_type="order_viewed", user_id=user(mark), event_properties=properties(mark)))
    # It keeps what failed for its next flush.
    for _ in range(50):
        client.flush()
        with lock:
            if len(ended) >= count:
                break
        time.sleep(0.1)
    client.shutdown()
    # A connection that ends without an answer costs it the batch, and it says nothing.
    for mark in set(range(first, first + count)) - {event.event_properties["mark"] for event in ended}:
        print("lost", mark, "never answered")
print("done")
