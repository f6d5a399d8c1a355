"""Checks the bounds of local days by zoneinfo, apart from the code under test.

Reads lines "ZONE DAY STARTS CLOSES" (Unix seconds) and prints those that it does not agree with.
"""
import sys
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def local(zone, seconds):
    """The local time of an instant, as seconds of a clock that shows 0 at 1970-01-01 00:00."""
    shown = (EPOCH + timedelta(seconds=seconds)).astimezone(zone).replace(tzinfo=timezone.utc)
    return int((shown - EPOCH).total_seconds())


def first(zone, target):
    """The first instant at which the local clock shows the target or more."""
    start, end = target - 40 * 3600, target + 40 * 3600
    candidates, seconds = set(), start
    while seconds < end:
        after = seconds + 600
        offset, offset_after = local(zone, seconds) - seconds, local(zone, after) - after
        candidates.add(target - offset)
        if offset != offset_after:
            low, high = seconds, after
            while high - low > 1:
                middle = (low + high) // 2
                if local(zone, middle) - middle == offset:
                    low = middle
                else:
                    high = middle
            candidates |= {high, target - offset_after}
        seconds = after
    return min(c for c in candidates if start <= c <= end and local(zone, c) >= target)


def bounds(zone, day):
    """When a day begins and when it closes, in Unix seconds."""
    midnight = (day - date(1970, 1, 1)).days * 86400
    return first(zone, midnight), first(zone, midnight + 86400 + 4 * 3600)


if __name__ == "__main__":
    for line in sys.stdin:
        name, day, starts, closes = line.split()
        expected = bounds(ZoneInfo(name), date.fromisoformat(day))
        if expected != (int(starts), int(closes)):
            print(name, day, "expected", *expected, "found", starts, closes)
    print("checked")
