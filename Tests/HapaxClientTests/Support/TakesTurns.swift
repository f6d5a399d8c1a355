import Dispatch
import Testing

/// For tests that compute for seconds without a pause: all of them share one thread.
///
/// The pool of threads that tests run on has one for each processor. A few such tests at once would hold all of them for minutes, and every
/// deadline that tests beside them keep would pass meanwhile.
struct TakesTurns: SuiteTrait, TestTrait, TestScoping {
    let isRecursive = true

    private final class OneThread: TaskExecutor {
        private let queue = DispatchQueue(label: "hapax.tests.turns")

        init() { queue.setSpecific(key: TakesTurns.key, value: true) }

        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
        }
    }

    private static let thread = OneThread()
    private static let key = DispatchSpecificKey<Bool>()

    /// Whether the caller is on the thread of these tests.
    static var isMyTurn: Bool { DispatchQueue.getSpecific(key: key) ?? false }

    func provideScope(for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void) async throws {
        try await withTaskExecutorPreference(Self.thread) { try await function() }
    }
}

extension Trait where Self == TakesTurns {
    static var takesTurns: Self { TakesTurns() }
}
