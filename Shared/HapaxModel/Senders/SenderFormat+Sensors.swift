extension SenderFormat {
    /// Sensors Analytics' SDKs (https://manual.sensorsdata.cn/sa/docs/tech_super_data_format): events, and what they do to profiles and things.
    static let sensors = SenderFormat(
        via: "sensors", body: [],
        event: [
            ("event", .name), ("type", .type), ("time", .time(rank: 0)), ("distinct_id", .user(rank: 0)), ("item_id", .user(rank: 1)),
            ("original_id", .anonymous(rank: 0)), ("anonymous_id", .anonymous(rank: 1)), ("properties", .properties(rank: 0)),
            ("token", .key),
            // Written anew by each attempt.
            ("_flush_time", .dropped),
        ],
        // So that erasing the user finds who it was before.
        typeNames: [("track_signup", "$identify")],
        paths: ["/sa", "/sa.gif", "/debug"].map { ($0, "") }, pixels: ["/sa", "/sa.gif"], named: ["track"],
        keyParameters: ["token", "project"], encrypted: ["9", "13"],
        libraries: ownLibrary + [("$via.lib.$lib", "$via.lib.$lib_version")], retryAfter: 1, keepsAtForbidden: true)
}
