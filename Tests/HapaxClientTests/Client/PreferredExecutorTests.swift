import Dispatch
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// A host may give its tasks an executor (https://github.com/swiftlang/swift-evolution/blob/main/proposals/0417-task-executor-preference.md).
/// Then each `await` on an actor lets its other jobs in, also one that needs not change the executor.
@Suite("A caller whose tasks prefer an executor", .endsWhenItHangs)
struct PreferredExecutorTests {
    private final class OneThread: TaskExecutor {
        private let queue = DispatchQueue(label: "hapax.tests.preferred")

        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
        }
    }

    @Test("hears of the end of a flush, however soon it comes (D6, R13)")
    func flushEnds() async throws {
        let test = try TestClient()
        try await withTaskExecutorPreference(OneThread()) {
            for round in 0..<200 {
                try await test.track(round..<round + 1)
                #expect(await test.client.flush().stored == 1)
                #expect(await test.client.flush() == FlushReport(DeliveryCounts(), remaining: 0, failure: nil))
            }
            await test.client.shutdown(within: .zero)
        }
    }
}
