extension SenderFormat {
    /// Mixpanel's SDKs (https://developer.mixpanel.com/reference/track-event): events, and what they do to profiles and groups.
    static let mixpanel = SenderFormat(
        via: "mixpanel", body: [],
        event: [
            ("event", .name), ("properties", .properties(rank: 0)), ("$distinct_id", .user(rank: 0)), ("$time", .time(rank: 0)),
            ("$token", .key),
        ] + (operations.map { ($0, .operation) } as [(StaticString, Role)]),
        nested: [
            ("token", .key), ("distinct_id", .user(rank: 1)), ("$insert_id", .id), ("time", .time(rank: 1)),
            // Of `$identify`, as ours has it: so that erasing the user finds who it was before.
            ("$anon_distinct_id", .anonymous(rank: 0)),
            // Written when it sends.
            ("mp_sent_by_lib_version", .dropped),
        ],
        scope: .nameAndUser, mayBeInSeconds: true, paths: places + [("/import", "")], pixels: places.map { $0.0 },
        libraries: [("mp_lib", "$lib_version")], answer: .one, retryAfter: 1)

    private static let places = [("/track", ""), ("/engage", "profile"), ("/groups", "group")]

    private static let operations: [StaticString] = [
        "$set", "$set_once", "$add", "$append", "$union", "$unset", "$remove", "$delete",
    ]
}
