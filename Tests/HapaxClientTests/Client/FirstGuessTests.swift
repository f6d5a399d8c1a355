#if os(Linux)
import Foundation
import Testing

/// What people write who do not know the client yet, and what the compiler says of it.
@Suite("First guesses", .endsWhenItHangs)
struct FirstGuessTests {
    /// A line of code, and a part of what the compiler says; nil for nothing.
    private static let guesses: [(line: String, error: String?)] = [
        // An id that is none is no other event at each try (C13).
        (#"try await client.trackDurably("paid", id: EventID(uuidString: "A-17"))"#, "must be unwrapped"),
        (#"client.track("paid", id: EventID(uuidString: order))"#, "must be unwrapped"),
        (#"client.track(NewEvent("paid", id: nil))"#, "'nil' is not compatible"),
        (#"tracking.track(Paid(), id: EventID(uuidString: order))"#, "must be unwrapped"),
        (#"client.startTimer("paid").end(id: EventID(uuidString: order))"#, "must be unwrapped"),
        (#"try await client.trackDurably("paid", id: EventID("A-17"))"#, "an order's number makes an id by EventID.derived(name:key:)"),
        (#"client.track("paid", id: .made)"#, nil),
        (#"try await client.trackDurably("paid", id: .derived(name: "paid", key: order))"#, nil),
        (#"if let id = EventID(uuidString: order) { client.track("paid", id: id) }"#, nil),
    ]

    @Test("a first guess compiles, or the compiler says what to write (C13)")
    func compilerAnswersFirstGuesses() async throws {
        let head = """
            import Foundation
            import HapaxClient
            struct Paid: TypedEvent { let eventName = "paid", properties: Properties = [:] }
            func guesses(client: EventClient, tracking: any EventTracking, order: String) async throws {
            """
        let body = Self.guesses.map { "    do { \($0.line) }" }
        let errors = try await BuiltModules.errors(of: head + "\n" + body.joined(separator: "\n") + "\n}\n")
        for (index, guess) in Self.guesses.enumerated() {
            let said = errors[index + head.split(separator: "\n").count + 1] ?? []
            let isAnswered = guess.error.map { error in said.contains { $0.contains(error) } } ?? said.isEmpty
            #expect(isAnswered, "\(guess.line): \(said)")
        }
    }
}
#endif
