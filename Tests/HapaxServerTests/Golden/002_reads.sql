CREATE TABLE public.projects (
    project_id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.report_bounds (
    project_id integer NOT NULL,
    day date NOT NULL,
    starts timestamp with time zone NOT NULL,
    ends timestamp with time zone NOT NULL,
    closes timestamp with time zone NOT NULL,
    time_zone text NOT NULL
);
CREATE TABLE public.report_days (
    project_id integer NOT NULL,
    day date NOT NULL,
    users bigint NOT NULL,
    active_users bigint NOT NULL,
    new_users bigint NOT NULL,
    sessions bigint NOT NULL,
    timed_sessions bigint NOT NULL,
    session_ms bigint NOT NULL,
    timed_users bigint NOT NULL,
    events bigint NOT NULL,
    ahead bigint NOT NULL
);
CREATE TABLE public.report_late (
    project_id integer NOT NULL,
    day date NOT NULL,
    late bigint NOT NULL
);
CREATE VIEW public.daily_report AS
 SELECT p.name AS project,
    b.day,
    b.time_zone,
    b.starts,
    b.ends,
    b.closes,
    d.users,
    d.active_users,
    d.new_users,
    d.sessions,
    d.timed_sessions,
    (floor((((2.0 * (d.session_ms)::numeric) + (d.timed_sessions)::numeric) / (NULLIF((2 * d.timed_sessions), 0))::numeric)))::bigint AS mean_session_ms,
    (floor((((2.0 * (d.session_ms)::numeric) + (d.timed_users)::numeric) / (NULLIF((2 * d.timed_users), 0))::numeric)))::bigint AS mean_use_ms,
    d.events,
    COALESCE(l.late, (0)::bigint) AS late,
    d.ahead
   FROM (((public.report_days d
     JOIN public.projects p USING (project_id))
     JOIN public.report_bounds b USING (project_id, day))
     LEFT JOIN public.report_late l USING (project_id, day));
CREATE TABLE public.event_partitions (
    name text NOT NULL,
    from_bucket integer NOT NULL,
    is_open boolean NOT NULL
);
CREATE TABLE public.events (
    project_id integer NOT NULL,
    event_id uuid NOT NULL,
    bucket integer NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    distinct_id text NOT NULL COLLATE pg_catalog."C",
    "time" timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    install_id uuid,
    sequence bigint,
    fingerprint bigint NOT NULL,
    properties jsonb NOT NULL
)
PARTITION BY RANGE (bucket);
CREATE TABLE public.events_2026_01 (
    project_id integer NOT NULL,
    event_id uuid NOT NULL,
    bucket integer NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    distinct_id text NOT NULL COLLATE pg_catalog."C",
    "time" timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    install_id uuid,
    sequence bigint,
    fingerprint bigint NOT NULL,
    properties jsonb NOT NULL
);
CREATE TABLE public.events_2026_02 (
    project_id integer NOT NULL,
    event_id uuid NOT NULL,
    bucket integer NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    distinct_id text NOT NULL COLLATE pg_catalog."C",
    "time" timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    install_id uuid,
    sequence bigint,
    fingerprint bigint NOT NULL,
    properties jsonb NOT NULL
);
CREATE TABLE public.events_2026_03 (
    project_id integer NOT NULL,
    event_id uuid NOT NULL,
    bucket integer NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    distinct_id text NOT NULL COLLATE pg_catalog."C",
    "time" timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    install_id uuid,
    sequence bigint,
    fingerprint bigint NOT NULL,
    properties jsonb NOT NULL
);
CREATE TABLE public.events_2026_04 (
    project_id integer NOT NULL,
    event_id uuid NOT NULL,
    bucket integer NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    distinct_id text NOT NULL COLLATE pg_catalog."C",
    "time" timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    install_id uuid,
    sequence bigint,
    fingerprint bigint NOT NULL,
    properties jsonb NOT NULL
);
CREATE TABLE public.events_future (
    project_id integer NOT NULL,
    event_id uuid NOT NULL,
    bucket integer NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    distinct_id text NOT NULL COLLATE pg_catalog."C",
    "time" timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    install_id uuid,
    sequence bigint,
    fingerprint bigint NOT NULL,
    properties jsonb NOT NULL
);
CREATE TABLE public.events_past (
    project_id integer NOT NULL,
    event_id uuid NOT NULL,
    bucket integer NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    distinct_id text NOT NULL COLLATE pg_catalog."C",
    "time" timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    install_id uuid,
    sequence bigint,
    fingerprint bigint NOT NULL,
    properties jsonb NOT NULL
);
CREATE TABLE public.events_undated (
    project_id integer NOT NULL,
    event_id uuid NOT NULL,
    bucket integer NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    distinct_id text NOT NULL COLLATE pg_catalog."C",
    "time" timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    install_id uuid,
    sequence bigint,
    fingerprint bigint NOT NULL,
    properties jsonb NOT NULL
);
CREATE VIEW public.events_with_late AS
 SELECT p.name AS project,
    b.day,
    e.event_id,
    e.event,
    e.distinct_id,
    e."time",
    e.received_at,
    COALESCE((e.received_at >= b.closes), false) AS late,
    ((e."time" - e.received_at) > '24:00:00'::interval) AS ahead,
    e.install_id,
    e.sequence,
    e.properties
   FROM ((public.events e
     JOIN public.projects p USING (project_id))
     LEFT JOIN public.report_bounds b ON (((b.project_id = e.project_id) AND (e."time" < b.ends) AND (b.starts = ( SELECT max(s.starts) AS max
           FROM public.report_bounds s
          WHERE ((s.project_id = e.project_id) AND (s.starts <= e."time")))))));
CREATE TABLE public.hapax_migrations (
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.installs (
    project_id integer NOT NULL,
    install_id uuid NOT NULL,
    created bigint NOT NULL,
    acknowledged bigint NOT NULL,
    word bigint NOT NULL,
    held jsonb NOT NULL,
    gone jsonb NOT NULL,
    refused jsonb NOT NULL,
    heard_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='50');
ALTER TABLE public.projects ALTER COLUMN project_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.projects_project_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.report_events (
    project_id integer NOT NULL,
    day date NOT NULL,
    event text NOT NULL COLLATE pg_catalog."C",
    count bigint NOT NULL
);
CREATE TABLE public.report_late_progress (
    singleton boolean DEFAULT true NOT NULL,
    late_to timestamp with time zone NOT NULL,
    CONSTRAINT report_late_progress_singleton_check CHECK (singleton)
);
CREATE TABLE public.report_progress (
    project_id integer NOT NULL,
    next_day date NOT NULL,
    folded_to timestamp with time zone NOT NULL
);
CREATE TABLE public.report_users (
    project_id integer NOT NULL,
    distinct_id text NOT NULL COLLATE pg_catalog."C",
    first_start timestamp with time zone NOT NULL
);
CREATE TABLE public.report_zones (
    project_id integer NOT NULL,
    from_day date NOT NULL,
    time_zone text NOT NULL
);
CREATE TABLE public.retention (
    singleton boolean DEFAULT true NOT NULL,
    horizon integer DEFAULT 0 NOT NULL,
    CONSTRAINT retention_singleton_check CHECK (singleton)
);
ALTER TABLE ONLY public.events ATTACH PARTITION public.events_2026_01 FOR VALUES FROM (20454) TO (20485);
ALTER TABLE ONLY public.events ATTACH PARTITION public.events_2026_02 FOR VALUES FROM (20485) TO (20513);
ALTER TABLE ONLY public.events ATTACH PARTITION public.events_2026_03 FOR VALUES FROM (20513) TO (20544);
ALTER TABLE ONLY public.events ATTACH PARTITION public.events_2026_04 FOR VALUES FROM (20544) TO (20574);
ALTER TABLE ONLY public.events ATTACH PARTITION public.events_future FOR VALUES FROM (20574) TO (MAXVALUE);
ALTER TABLE ONLY public.events ATTACH PARTITION public.events_past FOR VALUES FROM (0) TO (20454);
ALTER TABLE ONLY public.events ATTACH PARTITION public.events_undated FOR VALUES FROM (MINVALUE) TO (0);
INSERT INTO public.event_partitions VALUES ('events_undated', -2147483648, false);
INSERT INTO public.event_partitions VALUES ('events_past', 0, false);
INSERT INTO public.event_partitions VALUES ('events_2026_01', 20454, false);
INSERT INTO public.event_partitions VALUES ('events_2026_02', 20485, false);
INSERT INTO public.event_partitions VALUES ('events_2026_03', 20513, false);
INSERT INTO public.event_partitions VALUES ('events_2026_04', 20544, false);
INSERT INTO public.event_partitions VALUES ('events_future', 20574, true);
INSERT INTO public.events_2026_01 VALUES (1, '019b76da-a800-7000-8000-000000000001', 20454, 'order_paid', 'customer-1', '2026-01-01 00:00:00+00', NULL, '2026-11-25 22:43:22.010693+00', NULL, NULL, -6719974449699327678, '{"list": [1, null, "é"], "amount": 12.5}');
INSERT INTO public.events_2026_01 VALUES (2, '019b76da-a800-7000-8000-000000000001', 20454, 'order_paid', 'customer-1', '2026-01-01 00:00:00+00', NULL, '2026-11-25 22:43:22.010693+00', NULL, NULL, -828127275070898592, '{"amount": 12.5}');
INSERT INTO public.events_2026_01 VALUES (1, '019b76da-a800-8da7-8458-27b8e96702a1', 20454, 'order_paid', 'customer-1', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-11-25 22:43:22.010693+00', '019b76da-a800-7000-8000-000000000384', NULL, -828127275070898592, '{"amount": 12.5}');
INSERT INTO public.events_undated VALUES (1, '0d2790c6-343f-89f5-8458-27b8e96702a1', -2, 'order_paid', 'customer-1', '2026-01-01 00:00:00+00', NULL, '2026-11-25 22:43:22.010693+00', NULL, NULL, -828127275070898592, '{"amount": 12.5}');
INSERT INTO public.hapax_migrations VALUES ('001_store', '2026-11-25 22:43:21.82361+00');
INSERT INTO public.hapax_migrations VALUES ('002_reads', '2026-11-25 22:43:21.82361+00');
INSERT INTO public.installs VALUES (1, '019b76da-a800-7000-8000-000000000384', 4, 1, 2, '[[2, 2]]', '[[3, 3, "purged"]]', '{}', '2026-11-25 22:43:22.010693+00');
INSERT INTO public.projects OVERRIDING SYSTEM VALUE VALUES (1, 'shop', '2026-11-25 22:43:21.994174+00');
INSERT INTO public.report_late_progress VALUES (true, '1970-01-01 00:00:00+00');
INSERT INTO public.retention VALUES (true, 0);
SELECT pg_catalog.setval('public.projects_project_id_seq', 1, true);
ALTER TABLE ONLY public.event_partitions
    ADD CONSTRAINT event_partitions_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (event_id, project_id, bucket);
ALTER TABLE ONLY public.events_2026_01
    ADD CONSTRAINT events_2026_01_pkey PRIMARY KEY (event_id, project_id, bucket);
ALTER TABLE ONLY public.events_2026_02
    ADD CONSTRAINT events_2026_02_pkey PRIMARY KEY (event_id, project_id, bucket);
ALTER TABLE ONLY public.events_2026_03
    ADD CONSTRAINT events_2026_03_pkey PRIMARY KEY (event_id, project_id, bucket);
ALTER TABLE ONLY public.events_2026_04
    ADD CONSTRAINT events_2026_04_pkey PRIMARY KEY (event_id, project_id, bucket);
ALTER TABLE ONLY public.events_future
    ADD CONSTRAINT events_future_pkey PRIMARY KEY (event_id, project_id, bucket);
ALTER TABLE ONLY public.events_past
    ADD CONSTRAINT events_past_pkey PRIMARY KEY (event_id, project_id, bucket);
ALTER TABLE ONLY public.events_undated
    ADD CONSTRAINT events_undated_pkey PRIMARY KEY (event_id, project_id, bucket);
ALTER TABLE ONLY public.hapax_migrations
    ADD CONSTRAINT hapax_migrations_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.installs
    ADD CONSTRAINT installs_pkey PRIMARY KEY (project_id, install_id);
ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_name_key UNIQUE (name);
ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_pkey PRIMARY KEY (project_id);
ALTER TABLE ONLY public.report_bounds
    ADD CONSTRAINT report_bounds_pkey PRIMARY KEY (project_id, day);
ALTER TABLE ONLY public.report_days
    ADD CONSTRAINT report_days_pkey PRIMARY KEY (project_id, day);
ALTER TABLE ONLY public.report_events
    ADD CONSTRAINT report_events_pkey PRIMARY KEY (project_id, day, event);
ALTER TABLE ONLY public.report_late
    ADD CONSTRAINT report_late_pkey PRIMARY KEY (project_id, day);
ALTER TABLE ONLY public.report_late_progress
    ADD CONSTRAINT report_late_progress_pkey PRIMARY KEY (singleton);
ALTER TABLE ONLY public.report_progress
    ADD CONSTRAINT report_progress_pkey PRIMARY KEY (project_id);
ALTER TABLE ONLY public.report_users
    ADD CONSTRAINT report_users_pkey PRIMARY KEY (project_id, distinct_id);
ALTER TABLE ONLY public.report_zones
    ADD CONSTRAINT report_zones_pkey PRIMARY KEY (project_id, from_day);
ALTER TABLE ONLY public.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (singleton);
CREATE INDEX events_ahead ON ONLY public.events USING btree (project_id, "time") WHERE (("time" - received_at) > '24:00:00'::interval);
CREATE INDEX events_2026_01_project_id_time_idx ON public.events_2026_01 USING btree (project_id, "time") WHERE (("time" - received_at) > '24:00:00'::interval);
CREATE INDEX events_arrival ON ONLY public.events USING brin (received_at timestamptz_minmax_multi_ops, "time" timestamptz_minmax_multi_ops, distinct_id text_bloom_ops) WITH (autosummarize='on');
CREATE INDEX events_2026_01_received_at_time_distinct_id_idx ON public.events_2026_01 USING brin (received_at timestamptz_minmax_multi_ops, "time" timestamptz_minmax_multi_ops, distinct_id text_bloom_ops) WITH (autosummarize='on');
CREATE INDEX events_2026_02_project_id_time_idx ON public.events_2026_02 USING btree (project_id, "time") WHERE (("time" - received_at) > '24:00:00'::interval);
CREATE INDEX events_2026_02_received_at_time_distinct_id_idx ON public.events_2026_02 USING brin (received_at timestamptz_minmax_multi_ops, "time" timestamptz_minmax_multi_ops, distinct_id text_bloom_ops) WITH (autosummarize='on');
CREATE INDEX events_2026_03_project_id_time_idx ON public.events_2026_03 USING btree (project_id, "time") WHERE (("time" - received_at) > '24:00:00'::interval);
CREATE INDEX events_2026_03_received_at_time_distinct_id_idx ON public.events_2026_03 USING brin (received_at timestamptz_minmax_multi_ops, "time" timestamptz_minmax_multi_ops, distinct_id text_bloom_ops) WITH (autosummarize='on');
CREATE INDEX events_2026_04_project_id_time_idx ON public.events_2026_04 USING btree (project_id, "time") WHERE (("time" - received_at) > '24:00:00'::interval);
CREATE INDEX events_2026_04_received_at_time_distinct_id_idx ON public.events_2026_04 USING brin (received_at timestamptz_minmax_multi_ops, "time" timestamptz_minmax_multi_ops, distinct_id text_bloom_ops) WITH (autosummarize='on');
CREATE INDEX events_future_project_id_time_idx ON public.events_future USING btree (project_id, "time") WHERE (("time" - received_at) > '24:00:00'::interval);
CREATE INDEX events_future_received_at_time_distinct_id_idx ON public.events_future USING brin (received_at timestamptz_minmax_multi_ops, "time" timestamptz_minmax_multi_ops, distinct_id text_bloom_ops) WITH (autosummarize='on');
CREATE INDEX events_past_project_id_time_idx ON public.events_past USING btree (project_id, "time") WHERE (("time" - received_at) > '24:00:00'::interval);
CREATE INDEX events_past_received_at_time_distinct_id_idx ON public.events_past USING brin (received_at timestamptz_minmax_multi_ops, "time" timestamptz_minmax_multi_ops, distinct_id text_bloom_ops) WITH (autosummarize='on');
CREATE INDEX events_undated_project_id_time_idx ON public.events_undated USING btree (project_id, "time") WHERE (("time" - received_at) > '24:00:00'::interval);
CREATE INDEX events_undated_received_at_time_distinct_id_idx ON public.events_undated USING brin (received_at timestamptz_minmax_multi_ops, "time" timestamptz_minmax_multi_ops, distinct_id text_bloom_ops) WITH (autosummarize='on');
CREATE INDEX report_bounds_starts ON public.report_bounds USING btree (project_id, starts);
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_2026_01_pkey;
ALTER INDEX public.events_ahead ATTACH PARTITION public.events_2026_01_project_id_time_idx;
ALTER INDEX public.events_arrival ATTACH PARTITION public.events_2026_01_received_at_time_distinct_id_idx;
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_2026_02_pkey;
ALTER INDEX public.events_ahead ATTACH PARTITION public.events_2026_02_project_id_time_idx;
ALTER INDEX public.events_arrival ATTACH PARTITION public.events_2026_02_received_at_time_distinct_id_idx;
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_2026_03_pkey;
ALTER INDEX public.events_ahead ATTACH PARTITION public.events_2026_03_project_id_time_idx;
ALTER INDEX public.events_arrival ATTACH PARTITION public.events_2026_03_received_at_time_distinct_id_idx;
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_2026_04_pkey;
ALTER INDEX public.events_ahead ATTACH PARTITION public.events_2026_04_project_id_time_idx;
ALTER INDEX public.events_arrival ATTACH PARTITION public.events_2026_04_received_at_time_distinct_id_idx;
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_future_pkey;
ALTER INDEX public.events_ahead ATTACH PARTITION public.events_future_project_id_time_idx;
ALTER INDEX public.events_arrival ATTACH PARTITION public.events_future_received_at_time_distinct_id_idx;
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_past_pkey;
ALTER INDEX public.events_ahead ATTACH PARTITION public.events_past_project_id_time_idx;
ALTER INDEX public.events_arrival ATTACH PARTITION public.events_past_received_at_time_distinct_id_idx;
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_undated_pkey;
ALTER INDEX public.events_ahead ATTACH PARTITION public.events_undated_project_id_time_idx;
ALTER INDEX public.events_arrival ATTACH PARTITION public.events_undated_received_at_time_distinct_id_idx;
