import Foundation
import HapaxClient
import HapaxTestKit
import Testing

@testable import NotesApp

@MainActor
@Suite(.timeLimit(.minutes(1)))
struct NotesModelTests {
    @Test func addingANoteIsTracked() async throws {
        let events = try TestEvents()
        NotesModel(events: events.client).add("Buy milk", isPinned: true)
        #expect(try await events.first(named: "note_added")["length"] == 8)
    }

    @Test func whatANoteSaysIsNotTracked() async throws {
        let events = try TestEvents()
        let model = NotesModel(events: events.client)
        model.add("Buy milk")
        model.add("")
        #expect(await events.all().map(\.properties) == [["length": 8, "pinned": false]])
    }

    @Test func deletingSaysHowOldTheNoteWas() async throws {
        let events = try TestEvents()
        let model = NotesModel(events: events.client) { events.clock.now }
        model.add("Buy milk")
        events.clock.advance(by: .seconds(3 * 86_400))
        try model.delete(#require(model.notes.first))
        let deleted = try await events.first(named: "note_deleted")
        #expect(deleted["days_old"] == 3 && deleted.time == events.clock.now)
    }

    @Test func eventsConcernWhoIsSignedIn() async throws {
        let events = try TestEvents()
        let model = NotesModel(events: events.client)
        let anonymous = events.client.identity.anonymousID
        model.add("first")
        model.signIn(as: "anna")
        model.add("second")
        model.signOut()
        model.add("third")
        #expect(await events.all(named: "note_added").map(\.distinctID) == [anonymous, "anna", anonymous])
        #expect(await events.all(named: "signed_out").map(\.distinctID) == ["anna"])
    }

    @Test func nothingIsLostWhileTheServerIsAway() async throws {
        let events = try TestEvents()
        events.server.isAway()
        NotesModel(events: events.client).add("in a tunnel")
        #expect(await events.client.flush().remaining == 1)
        events.server.loses(answers: 1)
        _ = await events.client.flush()
        #expect(await events.client.flush().remaining == 0)
        #expect(Set(events.server.received.map(\.id)).count == 1)
    }

    @Test func aPreviewTracksNothing() {
        let model = NotesModel(events: NoEvents())
        model.add("Buy milk")
        #expect(model.notes.count == 1)
    }
}
