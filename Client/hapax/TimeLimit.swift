import Dispatch
import HapaxModel

/// For what a command would like to know before it ends, on a disk that may hang.
enum TimeLimit {
    /// - Returns: What `work` comes to; nil if it takes longer. Then it is left behind.
    static func result<Value: Sendable>(after limit: Duration, of work: @escaping @Sendable () -> Value) async -> Value? {
        await withCheckedContinuation { (continuation: CheckedContinuation<Value?, Never>) in
            let waiting = Locked<CheckedContinuation<Value?, Never>?>(continuation)
            let end: @Sendable (Value?) -> Void = { value in
                let first = waiting.withLock { waiting in
                    defer { waiting = nil }
                    return waiting
                }
                first?.resume(returning: value)
            }
            DispatchQueue(label: "hapax.work").async { end(work()) }
            DispatchQueue(label: "hapax.limit").asyncAfter(deadline: .now() + limit / .seconds(1)) { end(nil) }
        }
    }
}
