import HapaxModel

/// Keeps what was computed for a while, so that a question that many clients ask, or one asks repeatedly, costs one scan.
actor ReportCache<Key: Hashable & Sendable, Value: Sendable> {
    private struct Entry {
        var value: Value
        var until: ContinuousClock.Instant
    }

    private var entries: [Key: Entry] = [:]
    private var running: [Key: Task<Result<Value, StoreError>, Never>] = [:]
    private let maximumEntries: Int

    init(maximumEntries: Int = .max) { self.maximumEntries = maximumEntries }

    /// Removes a task that has ended. All of its callers try that, and a new task may have replaced it by then.
    private func forget(_ task: Task<Result<Value, StoreError>, Never>, of key: Key) {
        if running[key] == task { running[key] = nil }
    }

    /// - Parameters:
    ///   - keeps: How long a value is good for; nil for ``ServerLimits/reportAge``, or ``ServerLimits/reportScans`` times as long as it took.
    ///   - compute: Called unless the value is kept, or being computed.
    func value(
        _ key: Key, keeps: @Sendable (Value) -> Duration? = { _ in nil },
        _ compute: @escaping @Sendable () async throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        while let task = running[key] {
            let result = await task.value
            // The deadline of the caller that began the task has passed; this caller has its own.
            if case .failure(.tooHeavy) = result { forget(task, of: key) } else { return try result.get() }
        }
        let now = ContinuousClock.now
        entries = entries.filter { $0.value.until > now }
        if let entry = entries[key] { return entry.value }
        let task = Task { () -> Result<Value, StoreError> in
            do throws(StoreError) { return .success(try await compute()) } catch { return .failure(error) }
        }
        running[key] = task
        let result = await task.value
        forget(task, of: key)
        if case .success(let value) = result {
            let age = keeps(value) ?? max(ServerLimits.reportAge, (.now - now) * ServerLimits.reportScans)
            if entries.count >= maximumEntries, let first = entries.min(by: { $0.value.until < $1.value.until }) {
                entries[first.key] = nil
            }
            entries[key] = Entry(value: value, until: .now + age)
        }
        return try result.get()
    }
}
