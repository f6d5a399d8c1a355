"""Sends events with the unmodified SDK of another vendor, each with a mark, and prints the marks that it could not send.

senders.py SDK PORT KEY FIRST COUNT
"""

import sys
import time

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


def kept(consumer, failure, call, *parameters):
    """Calls, then flushes until that passes: for SDKs that raise what they meet and keep their batch."""
    for _ in range(1000):
        try:
            return call(*parameters)
        except failure as met:
            last = met
            call, parameters = consumer.flush, ()
            time.sleep(0.05)
    raise SystemExit("never sent: %r" % last)


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
elif sdk in ("posthog", "posthog-v1"):
    from posthog import Posthog

    # The key stands in its body alone, as Amplitude's; in the newer protocol in the head.
    mode = {"capture_mode": "v1"} if sdk == "posthog-v1" else {}
    client = Posthog(key, host=host, on_error=failed, max_retries=10, gzip=True, **mode)
    for mark in range(first, first + count):
        client.capture("order_viewed", distinct_id=user(mark), properties=properties(mark))
    client.flush()
    client.shutdown()
elif sdk == "mixpanel":
    from mixpanel import BufferedConsumer, Mixpanel, MixpanelException

    places = {"events_url": host + "/track", "people_url": host + "/engage", "groups_url": host + "/groups"}
    consumer = BufferedConsumer(max_size=50, **places)
    client = Mixpanel(key, consumer=consumer)

    # Over plain http it tries once and keeps what it could not send for its next flush.
    for mark in range(first, first + count):
        kept(consumer, MixpanelException, client.track, user(mark), "order_viewed", properties(mark))
    kept(consumer, MixpanelException, consumer.flush)
elif sdk == "sensors":
    from sensorsanalytics.sdk import BatchConsumer, SensorsAnalytics

    consumer = BatchConsumer(host + "/sa?project=" + key, max_size=50)
    client = SensorsAnalytics(consumer)

    # It raises what it meets, and keeps its batch for the next flush.
    for mark in range(first, first + count):
        kept(consumer, Exception, client.track, user(mark), "order_viewed", {"mark": mark, "list": ["ü"]})
    kept(consumer, Exception, consumer.flush)
elif sdk == "snowplow":
    from snowplow_tracker import Emitter, SelfDescribing, SelfDescribingJson, StructuredEvent, Subject, Tracker

    # Its trackers have no place for a key: it stands in the address.
    emitter = Emitter(host + "/k/" + key, batch_size=50, max_retry_delay_seconds=1)
    for mark in range(first, first + count):
        tracker = Tracker("shop", emitter, subject=Subject().set_user_id(user(mark)), encode_base64=mark % 3 > 0)
        event = SelfDescribingJson("iglu:com.acme/order_viewed/jsonschema/1-0-0", properties(mark))
        tracker.track(SelfDescribing(event))
    while True:
        emitter.flush()
        # Another thread may be sending: it holds the lock for that.
        with emitter.lock:
            if emitter.event_store.size() == 0 and not emitter.retry_timer.is_active():
                break
        time.sleep(0.05)
elif sdk == "cloudevents":
    import requests
    from cloudevents.core.bindings.http import to_binary_event, to_structured_event
    from cloudevents.core.v1.event import CloudEvent

    for mark in range(first, first + count):
        event = CloudEvent({"type": "order_viewed", "source": "/shop", "subject": user(mark), "id": str(mark), "specversion": "1.0"}, properties(mark))
        message = (to_binary_event if mark % 2 else to_structured_event)(event)
        for _ in range(200):
            try:
                answer = requests.post(host + "/v1/cloudevents", data=message.body, headers=dict(message.headers, Authorization="Bearer " + key))
                if answer.status_code == 204:
                    break
            except requests.RequestException:
                pass
            time.sleep(0.05)
        else:
            print("lost", mark, "never accepted")
elif sdk == "amplitude":
    import threading

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
