extension SenderFormat {
    /// PostHog's SDKs (https://posthog.com/docs/api/capture).
    static let posthog = SenderFormat(
        via: "posthog",
        body: [("batch", .events), ("sent_at", .sentAt), ("api_key", .key), ("token", .key)],
        event: [
            ("uuid", .id), ("event", .name), ("timestamp", .time(rank: 0)), ("distinct_id", .user(rank: 0)),
            ("properties", .properties(rank: 0)), ("sent_at", .dropped), ("api_key", .key), ("token", .key),
            // Counted from the first attempt; other ones say something else of the same instant.
            ("offset", .dropped),
        ],
        nested: [("token", .key), ("distinct_id", .user(rank: 1))], isDatedByID: true,
        paths: ["/batch", "/capture", "/e", "/i/v0/e", "/i/v0/ai/batch"].map { ($0, "") },
        pixels: ["/capture", "/e", "/i/v0/e"],
        libraries: ownLibrary,
        // Its SDKs count failures, and some give everything up at the fourth.
        retryAfter: 30)

    /// The same by its newer protocol, in which each event has a result; the key stands in the head.
    static let posthogResults = posthog.with(
        paths: ["/i/v1/analytics/events"], answer: .results, body: [("batch", .events), ("created_at", .sentAt)])
}
