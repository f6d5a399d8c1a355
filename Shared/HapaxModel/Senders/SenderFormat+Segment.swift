extension SenderFormat {
    /// Segment's SDKs, and all that send the same: RudderStack, Customer.io, Hightouch, June, Jitsu
    /// (https://segment.com/docs/connections/sources/catalog/libraries/server/http-api/).
    static let segment = SenderFormat(
        via: "segment",
        body: [
            ("batch", .events), ("sentAt", .sentAt), ("context", .shared), ("integrations", .shared), ("writeKey", .key),
            ("receivedAt", .dropped),
        ],
        event: [
            ("messageId", .id), ("event", .name), ("type", .type), ("timestamp", .time(rank: 0)), ("originalTimestamp", .time(rank: 1)),
            ("userId", .user(rank: 0)), ("anonymousId", .anonymous(rank: 0)), ("properties", .properties(rank: 0)),
            ("traits", .properties(rank: 1)),
            // Some SDKs write these anew at each attempt.
            ("sentAt", .dropped), ("writeKey", .hidden), ("_metadata", .dropped), ("receivedAt", .dropped),
        ],
        datedPrefixes: ["ajs-next-", "node-next-"],
        paths: ["/v1/batch", "/v1/import", "/v1/b", "/beacon/v1/batch", "/sdk/batch"].map { ($0, "track") }
            + ["track", "identify", "page", "screen", "group", "alias"].flatMap { [("/v1/\($0)", $0), ("/v1/\($0.prefix(1))", $0)] }
            .filter { $0.0 != "/v1/b" },
        named: ["track"], keyParameters: ["writeKey"],
        libraries: ["$via.context", "$via.batch.context"].map { ("\($0).library.name", "\($0).library.version") }, retryAfter: 10)
}
