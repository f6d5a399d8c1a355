import HapaxModel

/// What a person does in an app without a pause of half an hour, for a day at most. By the wall clock, so that it goes on in the next run.
struct AppSession: Hashable, Sendable {
    let id: EventID
    /// In Unix milliseconds.
    let began: Int64
    /// In Unix milliseconds.
    var lastActivity: Int64

    private static let pause: Int64 = 30 * 60 * 1_000
    private static let length: Int64 = 24 * 60 * 60 * 1_000

    /// A clock that went back ends none, unless by so much that it was wrong before: the session would last until that time comes. Without
    /// overflow: a damaged file says anything.
    func isOver(at now: Int64) -> Bool {
        now &- lastActivity >= Self.pause || now &- began >= Self.length || began &- now >= Self.length
    }
}
