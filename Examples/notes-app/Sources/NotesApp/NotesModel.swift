import Foundation
import HapaxClient
import Observation

struct Note: Identifiable, Hashable {
    let id = UUID()
    let text: String
    let written: Date
}

/// What the view shows and does. It is handed whoever takes events, so that a test can look at them and a preview needs none.
@MainActor
@Observable
final class NotesModel {
    private(set) var notes: [Note] = []
    private(set) var user: String?
    private let events: any EventTracking
    private let now: () -> Date

    init(events: any EventTracking, now: @escaping () -> Date = Date.init) {
        (self.events, self.now) = (events, now)
    }

    func add(_ text: String, isPinned: Bool = false) {
        guard !text.isEmpty else { return }
        notes.insert(Note(text: text, written: now()), at: isPinned ? 0 : notes.endIndex)
        events.track(NoteEvent.added(length: text.count, isPinned: isPinned))
    }

    func delete(_ note: Note) {
        guard let index = notes.firstIndex(of: note) else { return }
        notes.remove(at: index)
        events.track(NoteEvent.deleted(daysOld: Int(now().timeIntervalSince(note.written) / 86_400)))
    }

    func signIn(as user: String) {
        self.user = user
        events.identify(user)
    }

    func signOut() {
        events.track(NoteEvent.signedOut)
        user = nil
        events.identify(nil)
    }
}
