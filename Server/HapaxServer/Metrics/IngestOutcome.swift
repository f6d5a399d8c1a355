import HapaxModel

/// What became of one request's events.
package struct IngestOutcome: Sendable, Equatable {
    package var received: Int
    /// The results of the events that this request did not store, by their place in it.
    package var results: [Receipt.Result] = []

    var stored: Int { received - results.count }
}
