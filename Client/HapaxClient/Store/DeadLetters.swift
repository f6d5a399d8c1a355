import HapaxModel

/// The events of a client's queue file that were not stored and are not sent again by themselves.
///
/// The disk is read and written on the delivery's thread, beside what it sends.
public struct DeadLetters: Sendable {
    /// nil while the queue is closed: then there is none, and nothing can be done.
    let client: OpenClient?

    private static let page = 500

    /// In the order they came.
    ///
    /// - Parameters:
    ///   - number: Only those after this one; 0 for the first.
    ///   - limit: At most so many; none if it is less than 1.
    /// - Throws: ``StorageFailure``.
    public func list(after number: Int64 = 0, limit: Int = 100) async throws(StorageFailure) -> [DeadLetter] {
        // To SQLite a negative limit is none (https://www.sqlite.org/lang_select.html#the_limit_clause).
        try await work { try $0.deadLetters(after: number, limit: max(limit, 0)) }
    }

    /// How many there are.
    public var count: Int { Int(client?.file.counters.deadLetters ?? 0) }

    /// Puts them back among what waits, in their old places; durable on return. Those that break a limit stay.
    ///
    /// - Parameter numbers: nil for all.
    /// - Throws: ``StorageFailure``; what was done before the failure stays done.
    public func retry(_ numbers: [Int64]? = nil) async throws(StorageFailure) -> RetriedDeadLetters {
        try await work { try $0.retryDeadLetters(numbers) }
    }

    /// Writes each as one line of JSON, with `reason`, `detail`, `time` and either `event` or, if its bytes are no event, `text`; if they are
    /// not UTF-8 either, `text` holds replacement characters and `base64` the bytes.
    ///
    /// - Returns: How many.
    /// - Throws: ``StorageFailure``, or what `write` throws.
    public func export(_ write: ([UInt8]) throws -> Void) async throws -> Int {
        var count = 0
        var last: Int64 = 0
        while true {
            let deadLetters = try await list(after: last, limit: Self.page)
            guard let end = deadLetters.last else { return count }
            for deadLetter in deadLetters { try write(deadLetter.line) }
            count += deadLetters.count
            last = end.number
        }
    }

    /// Removes them for ever, durable on return; they stay counted in ``EventClient/Status/deadLettered``.
    ///
    /// - Returns: How many there were.
    /// - Throws: ``StorageFailure``; what was done before the failure stays done.
    public func purge(_ numbers: [Int64]) async throws(StorageFailure) -> Int {
        try await work { try $0.purgeDeadLetters(numbers) }
    }

    private func work<Value: Sendable>(_ body: @Sendable (QueueFile) throws -> Value) async throws(StorageFailure) -> Value {
        guard let client else { throw .notOpen }
        do {
            return try await client.delivery.perform { [file = client.file] in try body(file) }
        } catch {
            throw StorageFailure(error)
        }
    }
}
