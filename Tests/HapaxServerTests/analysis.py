"""Computes answers of /v1/reports/series, breakdown, funnel and retention anew from the events, apart from the code under test.

Reads {"now": ms, "first_day": day} on the first line, answers on the next ones, an empty line, and the lines of /v1/export. Prints what differs.
"""
import json
import sys
from collections import Counter, defaultdict
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from zoneinfo import ZoneInfo

import day_bounds

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DAY = 86_400_000_000


def microseconds(text):
    delta = datetime.fromisoformat(text.replace("Z", "+00:00")) - EPOCH
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds


def canonical(value):
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda m: (len(m[0].encode()), m[0].encode()))
        return "{" + ",".join(canonical(k) + ":" + canonical(v) for k, v in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, (Decimal, int)) and not isinstance(value, bool):
        number = Decimal(value)
        text = "0" if number == 0 else format(number.normalize(), "f")
        return text if len(text) < 40 else str(number.normalize())
    return json.dumps(value, ensure_ascii=False)


def parsed(text):
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


MISSING = object()


def lookup(properties, name):
    if name in properties:
        return properties[name]
    found = properties
    for step in name.split("."):
        found = found[step] if isinstance(found, dict) and step in found else MISSING
    return found


def keeps(event, filters):
    for text in filters:
        name, wanted = text.split(":", 1)
        value = lookup(event["properties"], name)
        if value is MISSING:
            return False
        texts = {canonical(wanted)}
        try:
            texts.add(canonical(parsed(wanted)))
        except ValueError:
            pass
        if canonical(value) not in texts:
            return False
    return True


class Days:
    def __init__(self, answer, now):
        self.zone = ZoneInfo(answer["time_zone"])
        self.settled = min(microseconds(answer["as_of"]), now * 1000)
        self.basis = answer["basis"]
        query = answer["query"]
        self.first, self.last = date.fromisoformat(query["from"]), date.fromisoformat(query["to"])
        self.span = [self.first + timedelta(days=n) for n in range((self.last - self.first).days)]

    @cache
    def starts(self, day):
        return day_bounds.bounds(self.zone, day)[0] * 1_000_000

    @cache
    def closes(self, day):
        return max(day_bounds.bounds(self.zone, day)[1] * 1_000_000, self.starts(day + timedelta(days=1)))

    @cache
    def ends(self, day):
        return self.starts(day + timedelta(days=1))

    def day(self, time):
        local = EPOCH + timedelta(microseconds=time)
        day = local.astimezone(self.zone).date() + timedelta(days=1)
        while self.starts(day) > time:
            day -= timedelta(days=1)
        return day

    def counted(self, rows, query):
        """Time, user and event of each row that counts, whenever it happened."""
        for received, event in rows:
            time = event["time"] * 1000
            if time - received > DAY or received >= self.settled:
                continue
            if self.basis == "closed" and received >= self.closes(self.day(time)):
                continue
            if query.get("event") not in (None, event["event"]) or not keeps(event, query["where"]):
                continue
            yield time, event["distinct_id"], event

    def frame(self, answer, rows, now):
        late = ahead = 0
        for received, event in rows:
            time = event["time"] * 1000
            if not self.starts(self.first) <= time < self.starts(self.last):
                continue
            ahead += time - received > DAY
            late += time - received <= DAY and self.closes(self.day(time)) <= received < now * 1000
        needed = list(self.span)
        if "steps" in answer:
            last = self.day(self.starts(self.last) + int(answer["query"]["within_ms"]) * 1000)
            needed += [self.last + timedelta(days=n) for n in range((last - self.last).days + 1)]
        if needed and answer["query"].get("over"):
            needed = [self.first - timedelta(days=1)] + needed
        final = self.basis == "closed" and bool(needed) and now * 1000 >= max(map(self.closes, needed), default=0)
        return {"late": late, "ahead": ahead, "final": final}


def figures(found):
    found = list(found)
    return {"events": len(found), "users": len({user for _, user in found})}


def instant(text):
    return microseconds(text)


def series(answer, days, rows, first_day):
    query = answer["query"]
    found = [(time, user) for time, user, _ in days.counted(rows, query)]

    def points(span):
        pieces, last = [], None
        for day in span:
            key = {"week": day.isocalendar()[:2], "month": (day.year, day.month)}.get(query["unit"])
            step = 3_600_000_000 if query["unit"] == "hour" else DAY * 2
            at = days.starts(day)
            while at < days.ends(day):
                end = min(at + step, days.ends(day))
                if key is not None and key == last:
                    pieces[-1] = (pieces[-1][0], end, pieces[-1][2] + [day])
                else:
                    pieces.append((at, end, [day]))
                at, last = end, key
        return pieces

    def within(start, end):
        return [(time, user) for time, user in found if start <= time < end]

    expected = []
    for start, end, of in points(days.span):
        point = {"start": start, "end": end, "state": "closed" if all(days.settled >= days.closes(d) for d in of) else "open"}
        point |= figures(within(start, end))
        if query.get("over"):
            lead = days.starts(of[0] - timedelta(days=int(query["over"]) - 1))
            point["users_over"] = len({user for _, user in within(lead, end)})
        expected.append(point)
    total = figures(within(days.starts(days.first), days.starts(days.last)))
    if query.get("compare"):
        before = [day - timedelta(days=len(days.span)) for day in days.span]
        known = bool(before) and before[-1] >= first_day
        cuts = {
            b: days.starts(b) + max(0, days.settled - days.starts(d)) if days.settled < days.ends(d) else days.ends(b)
            for b, d in zip(before, days.span)
        }
        kept = [(time, user) for time, user in found if days.day(time) in cuts and time < cuts[days.day(time)]]
        former = points(before)
        for index, point in enumerate(expected):
            point["previous"] = None
            if index < len(former) and known and former[index][1] > days.starts(first_day):
                start, end, _ = former[index]
                point["previous"] = figures((t, u) for t, u in kept if start <= t < end)
        total["previous"] = figures(kept) if known else None
    for point in answer["points"]:
        point["start"], point["end"] = instant(point["start"]), instant(point["end"])
    return {"points": expected, "total": total}


def breakdown(answer, days, rows, first_day):
    query = answer["query"]
    lower, upper = days.starts(days.first), days.starts(days.last)
    by_value = defaultdict(list)
    for time, user, event in days.counted(rows, query):
        if lower <= time < upper:
            value = lookup(event["properties"], query["property"])
            by_value[None if value is MISSING else canonical(value)].append((time, user))
    missing = by_value.pop(None, [])
    ranked = sorted(by_value, key=lambda v: (-figures(by_value[v])[query["sort"]], v.encode()))
    top, rest = ranked[: int(query["limit"])], ranked[int(query["limit"]) :]
    for row in answer["rows"]:
        row["value"] = canonical(row["value"])
    everything = [row for rows in by_value.values() for row in rows] + missing
    return {
        "rows": [{"value": value} | figures(by_value[value]) for value in top],
        "missing": figures(missing),
        "other": {"values": len(rest)} | figures(row for value in rest for row in by_value[value]),
        "total": figures(everything),
    }


def fraction(part, whole):
    return None if not whole else (Decimal(part) / whole).quantize(Decimal("0.0001"), ROUND_HALF_UP)


def rank(times, numerator, denominator):
    """The nearest rank (ISO/IEC: the least value that so many are not above)."""
    return sorted(times)[max(0, -(-len(times) * numerator // denominator) - 1)] if times else None


def funnel(answer, days, rows, first_day):
    query = answer["query"]
    steps, within = query["steps"], int(query["within_ms"])
    lower, upper = days.starts(days.first), days.starts(days.last)
    end = days.ends(days.day(upper + within * 1000))
    by_user, users_of = defaultdict(list), defaultdict(set)
    for time, user, event in days.counted(rows, {"where": []}):
        matches = {n for n, step in enumerate(steps) if event["event"] == step["event"] and keeps(event, step["where"])}
        if not matches or lower == upper or not lower <= time < end:
            continue
        install = event.get("install", {}).get("id")
        key = user if query["by"] == "distinct_id" else install
        if key is None:
            continue
        if install is not None:
            users_of[install].add(user)
        number = event.get("install", {}).get("sequence")
        order = (time, install is None, install or "", number is None, int(number or 0), event["event_id"])
        by_user[key].append((order, event["time"], matches, time < upper))
    counts, opens = [0] * len(steps), 0
    first, previous = [[] for _ in steps], [[] for _ in steps]
    for found in by_user.values():
        found.sort()
        best, latest = [], None
        for index, (_, time, matches, begins) in enumerate(found):
            if 0 not in matches or not begins:
                continue
            latest, times = time, [time]
            for _, later, later_matches, _ in found[index + 1 :]:
                if len(times) < len(steps) and len(times) in later_matches and later - time <= within:
                    times.append(later)
            if len(times) > len(best):
                best = times
        if not best:
            continue
        for step, time in enumerate(best):
            counts[step] += 1
            if step > 0:
                first[step].append(time - best[0])
                previous[step].append(time - best[step - 1])
        if len(best) < len(steps) and days.closes(days.day(latest * 1000 + within * 1000)) > days.settled:
            opens += 1
    expected = []
    for n, step in enumerate(steps):
        expected.append({
            "step": step["event"], "users": counts[n],
            "from_previous": fraction(counts[n], counts[n - 1]) if n else None, "from_first": fraction(counts[n], counts[0]) if n else None,
            "median_ms": rank(first[n], 1, 2), "p90_ms": rank(first[n], 9, 10),
            "median_from_previous_ms": rank(previous[n], 1, 2), "p90_from_previous_ms": rank(previous[n], 9, 10),
        })
    straddled = query["by"] == "distinct_id" and any(1 < len(users) <= 10 for users in users_of.values())
    answer["straddled"] = any(warning["code"] == "steps_straddle_login" for warning in answer["warnings"])
    return {"steps": expected, "open": opens, "straddled": straddled}


def retention(answer, days, rows, first_day):
    query = answer["query"]
    lower, upper = days.starts(days.first), days.starts(days.last)
    starts, returns = defaultdict(list), defaultdict(set)
    for received, event in rows:
        time = event["time"] * 1000
        if time - received <= DAY and event["event"] == query["start"] and time < upper and received < days.settled:
            starts[event["distinct_id"]].append((time, received))
    for time, user, _ in days.counted(rows, {"event": query["return"], "where": query["where"]}):
        if lower <= time < upper:
            returns[user].add(days.day(time))
    weekly = query["unit"] == "week"
    units, unit_of = [], {}
    for day in days.span:
        if not units or not weekly or day.isocalendar()[:2] != units[-1][0].isocalendar()[:2]:
            units.append([])
        units[-1].append(day)
        unit_of[day] = len(units) - 1
    cohorts, unassigned = [set() for _ in units], 0
    for user, found in starts.items():
        in_time = [days.day(t) for t, r in found if days.basis == "all" or r < days.closes(days.day(t))]
        # Whoever had a start in time before has a place among earlier days.
        if not in_time or min(in_time) < days.first:
            continue
        day = min(in_time)
        if any(t < days.starts(day) and (days.basis == "all" or r < days.closes(day)) for t, r in found):
            unassigned += 1
        else:
            cohorts[unit_of[day]].add(user)
    closed = [all(days.settled >= days.closes(d) for d in unit) for unit in units]
    begun = [days.starts(unit[0]) < days.settled for unit in units]
    expected, average = [], [{"users": 0, "size": 0} for _ in units]
    for c, users in enumerate(cohorts):
        cells = []
        for u in range(c, len(units)):
            reached = [{unit_of[d] for d in returns[user]} for user in users]
            count = sum(u in r if query["mode"] == "on" else any(v >= u for v in r) for r in reached)
            done = closed[u] if query["mode"] == "on" else all(closed[u:])
            cells.append({"users": count, "state": "closed" if done else "open"} if begun[u] else None)
            if begun[u] and done:
                average[u - c]["users"] += count
                average[u - c]["size"] += len(users)
        expected.append({"day": units[c][0].isoformat(), "size": len(users), "returned": cells})
    return {"cohorts": expected, "average": average, "unassigned": unassigned}


KINDS = {"points": series, "rows": breakdown, "steps": funnel, "cohorts": retention}
lines = sys.stdin.buffer.read().decode().split("\n")
blank = lines.index("")
header, answers = json.loads(lines[0]), [parsed(line) for line in lines[1:blank]]
rows = [(microseconds(event["received_at"]), event) for event in map(parsed, filter(None, lines[blank:]))]
for _, event in rows:
    event["time"] = int(event["time"])
first_day = date.fromisoformat(header["first_day"])
for number, answer in enumerate(answers):
    days = Days(answer, header["now"])
    kind = next(KINDS[name] for name in KINDS if name in answer)
    expected = days.frame(answer, rows, header["now"]) | kind(answer, days, rows, first_day)
    for name, value in expected.items():
        if answer[name] != value:
            print("answer", number, answer["query"], name, "expected", value, "found", answer[name])
print("checked", len(answers))
