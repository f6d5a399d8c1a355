import HapaxClient

/// All events of the app.
enum NoteEvent: TypedEvent {
    case added(length: Int, isPinned: Bool)
    case deleted(daysOld: Int)
    case signedOut

    var eventName: String {
        switch self {
        case .added: "note_added"
        case .deleted: "note_deleted"
        case .signedOut: "signed_out"
        }
    }

    // What a note is about, not what it says: an event holds no text of the user's.
    var properties: Properties {
        switch self {
        case .added(let length, let isPinned): ["length": length, "pinned": isPinned]
        case .deleted(let daysOld): ["days_old": daysOld]
        case .signedOut: [:]
        }
    }
}
