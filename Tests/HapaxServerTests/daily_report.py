"""Computes daily reports anew from the events, apart from the code under test.

Reads an answer of /v1/reports/daily on the first line, and behind it the lines of /v1/export. Prints what differs.
"""
import json
import sys
from collections import Counter
from datetime import datetime, timezone
from decimal import ROUND_FLOOR, Decimal

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def microseconds(text):
    delta = datetime.fromisoformat(text.replace("Z", "+00:00")) - EPOCH
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds


def mean(total, count):
    return None if count == 0 else int((Decimal(total) / count + Decimal("0.5")).to_integral_value(ROUND_FLOOR))


def duration(event):
    seconds = event["properties"].get("$event_duration")
    if isinstance(seconds, bool) or not isinstance(seconds, Decimal) or not 0 <= seconds <= 86400:
        return None
    return int((seconds * 1000 + Decimal("0.5")).to_integral_value(ROUND_FLOOR))


def figures(day, rows, basis):
    starts, ends, closes = (microseconds(day[name]) for name in ("starts_at", "ends_at", "closes_at"))
    ahead, late, of_day, earlier = 0, 0, [], set()
    for received, event in rows:
        time = event["time"] * 1000
        in_time = basis == "all" or received < closes
        if time - received > 86_400_000_000:
            ahead += starts <= time < ends
            continue
        if starts <= time < ends:
            late += received >= closes
            if in_time:
                of_day.append(event)
        if event["event"] == "$AppStart" and time < starts and in_time:
            earlier.add(event["distinct_id"])
    active = {e["distinct_id"] for e in of_day if e["event"] == "$AppStart"}
    ends_of_sessions = [e for e in of_day if e["event"] == "$AppEnd"]
    timed = [(e["distinct_id"], duration(e)) for e in ends_of_sessions if duration(e) is not None]
    total = sum(d for _, d in timed)
    names = sorted(Counter(e["event"] for e in of_day).items(), key=lambda n: (-n[1], n[0].encode()))
    return {
        "users": len({e["distinct_id"] for e in of_day}), "active_users": len(active), "new_users": len(active - earlier),
        "sessions": len(ends_of_sessions), "timed_sessions": len(timed), "mean_session_ms": mean(total, len(timed)),
        "mean_use_ms": mean(total, len({u for u, _ in timed})),
        "events": {"total": len(of_day), "by_name": [{"event": n, "count": c} for n, c in names[:100]], "other": sum(c for _, c in names[100:])},
        "late": late, "ahead": ahead,
    }


report, *events = [json.loads(line, parse_float=Decimal) for line in sys.stdin.buffer.read().split(b"\n") if line]
rows = [(microseconds(event["received_at"]), event) for event in events]
for _, event in rows:
    value = event["properties"].get("$event_duration")
    if isinstance(value, int) and not isinstance(value, bool):
        event["properties"]["$event_duration"] = Decimal(value)
basis = report["query"]["basis"]
for day in report["days"]:
    for name, expected in figures(day, rows, basis).items():
        if name == "late" and day["state"] != "closed":
            continue
        if day[name] != expected:
            print(day["day"], name, "expected", expected, "found", day[name])
print("checked", len(report["days"]))
