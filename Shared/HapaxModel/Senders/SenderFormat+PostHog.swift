extension SenderFormat {
    /// PostHog's SDKs (https://posthog.com/docs/api/capture).
    static let posthog = posthog(
        paths: ["/batch", "/capture", "/e", "/i/v0/e", "/i/v0/ai/batch"], pixels: ["/capture", "/e", "/i/v0/e"],
        body: [("batch", .events), ("sent_at", .sentAt), ("api_key", .key), ("token", .key)], answer: .all)

    /// The same by their newer protocol, in which each event has a result; the key stands in the head.
    static let posthogResults = posthog(
        paths: ["/i/v1/analytics/events"], body: [("batch", .events), ("created_at", .sentAt)], answer: .results)

    private static func posthog(
        paths: [String], pixels: [String] = [], body: [(name: StaticString, role: BodyRole)], answer: Answer
    ) -> SenderFormat {
        SenderFormat(
            via: "posthog", body: body,
            event: [
                ("uuid", .id), ("event", .name), ("timestamp", .time(rank: 0)), ("distinct_id", .user(rank: 0)),
                ("properties", .properties(rank: 0)), ("sent_at", .dropped), ("api_key", .key), ("token", .key),
                // Counted from the first attempt; other ones say something else of the same instant.
                ("offset", .dropped),
            ],
            nested: [("token", .key), ("distinct_id", .user(rank: 1)), ("$anon_distinct_id", .anonymous(rank: 0))], isDatedByID: true,
            paths: paths.map { ($0, "") }, pixels: pixels,
            libraries: ownLibrary, answer: answer,
            // Its SDKs count failures, and some give everything up at the fourth.
            retryAfter: 30)
    }
}
