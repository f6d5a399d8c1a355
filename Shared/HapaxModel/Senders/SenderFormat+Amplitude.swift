extension SenderFormat {
    /// Amplitude's SDKs (https://amplitude.com/docs/apis/analytics/http-v2).
    static let amplitude = SenderFormat(
        via: "amplitude",
        body: [
            ("events", .events), ("client_upload_time", .sentAt), ("api_key", .key), ("options", .dropped),
            ("request_metadata", .dropped),
        ],
        event: [
            ("insert_id", .id), ("event_type", .name), ("time", .time(rank: 0)), ("user_id", .user(rank: 0)),
            ("device_id", .anonymous(rank: 0)),
            ("event_properties", .properties(rank: 0)), ("api_key", .hidden),
        ],
        // Its ids are unique by device.
        scope: .anonymousUser, paths: [("/2/httpapi", "")], libraries: [("$via.library", "")], retryAfter: 1)
}
