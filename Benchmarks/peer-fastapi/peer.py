"""What a team would write in an afternoon: a FastAPI server that stores batches of events, each event once.

It answers the same wire as Hapax, so that the same load can be sent to both: one transaction a request, one INSERT … ON CONFLICT of arrays,
ids that came back are stored, the others are duplicates. It checks the kinds of the fields and nothing else: no limits, no conflicts by
content, no partitions, no budget of memory, no turns.
"""

import os
import uuid
from contextlib import asynccontextmanager
from datetime import datetime, timezone

import asyncpg
import orjson
from fastapi import FastAPI, Request, Response

TABLE = """
CREATE TABLE IF NOT EXISTS peer_events (
  project_id integer NOT NULL, event_id uuid NOT NULL, event text COLLATE "C" NOT NULL, distinct_id text COLLATE "C" NOT NULL,
  time timestamptz NOT NULL, sent_at timestamptz, received_at timestamptz NOT NULL DEFAULT now(), sequence bigint, properties jsonb NOT NULL,
  PRIMARY KEY (event_id, project_id))
"""

INSERT = """
INSERT INTO peer_events (project_id, event_id, event, distinct_id, time, sent_at, sequence, properties)
SELECT 1, e.id, e.name, e.distinct_id, e.time, $6, e.sequence, e.properties
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::int8[], $7::jsonb[]) AS e (id, name, distinct_id, time, sequence, properties)
ON CONFLICT DO NOTHING RETURNING event_id
"""

KEY = "Bearer " + os.environ["PEER_KEY"]


@asynccontextmanager
async def lifespan(app: FastAPI):
    async def prepare(connection):
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=lambda text: text, decoder=lambda text: text)

    app.state.pool = await asyncpg.create_pool(os.environ["PEER_STORE"], min_size=4, max_size=4, init=prepare)
    yield
    await app.state.pool.close()


app = FastAPI(lifespan=lifespan)


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


@app.get("/health")
async def health():
    return {}


@app.post("/v1/events")
async def ingest(request: Request):
    if request.headers.get("authorization") != KEY:
        return Response(status_code=401)
    try:
        batch = orjson.loads(await request.body())
        events = batch["events"]
        ids = [uuid.UUID(event["event_id"]) for event in events]
        names = [event["event"] for event in events]
        users = [event["distinct_id"] for event in events]
        times = [moment(event["time"]) for event in events]
        sequences = [event.get("sequence") for event in events]
        properties = [orjson.dumps(event.get("properties") or {}).decode() for event in events]
        sent_at = moment(batch["sent_at"]) if "sent_at" in batch else None
        if not all(isinstance(text, str) and text for text in names + users):
            return Response(status_code=400)
    except (KeyError, TypeError, ValueError):
        return Response(status_code=400)
    async with request.app.state.pool.acquire() as connection:
        rows = await connection.fetch(INSERT, ids, names, users, times, sequences, sent_at, properties)
    stored = {row[0] for row in rows}
    results = []
    for index, id in enumerate(ids):
        if id in stored:
            # A second event of this id in the batch is a duplicate of the first.
            stored.remove(id)
        else:
            results.append({"index": index, "event_id": str(id), "outcome": "duplicate"})
    counts = {"received": len(ids), "stored": len(ids) - len(results), "duplicates": len(results)}
    answer = {"batch_id": batch.get("batch_id"), **counts, "results": results}
    return Response(orjson.dumps(answer), media_type="application/json")
