import Dispatch
import Foundation
import HapaxModel
import Testing

/// In addition to a time limit: ends a run in which a test hangs, after naming that test and those that run beside it.
///
/// A test that exceeds its limit is only cancelled, and what a defect makes hang does not heed that: a call that never returns, a thread that
/// is blocked. Then the process ends. `.ci/run-tests` starts it again for the tests that have not ended yet, which it finds in the file that
/// `HAPAX_TESTS_ENDED` names.
struct EndOfHangs: SuiteTrait, TestTrait, TestScoping {
    let isRecursive = true

    /// For a test that does heed its cancellation.
    private static let grace: DispatchTimeInterval = .seconds(10)
    private static let running = Locked<[Test.ID: ContinuousClock.Instant]>([:])
    private static let ended = Ended()

    func provideScope(for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void) async throws {
        guard !Self.ended.earlier.contains("\(test.id)") else { return }
        let start = ContinuousClock.now
        Self.running.withLock { $0[test.id] = start }
        let hasEnded = Locked(false)
        defer {
            hasEnded.withLock { $0 = true }
            Self.running.withLock { $0[test.id] = nil }
            Self.ended.add(test, after: .now - start)
        }
        try await withTaskCancellationHandler {
            try await function()
        } onCancel: {
            DispatchQueue.global().asyncAfter(deadline: .now() + Self.grace) {
                guard !hasEnded.withLock({ $0 }) else { return }
                Self.ended.add(test, after: .now - start)
                let others = Self.running.withLock { $0 }.filter { $0.key != test.id }
                let lines = others.map { "  beside it ran \($0.key), for \((ContinuousClock.now - $0.value) / .seconds(1)) s\n" }
                FileHandle.standardError.write(Data("It hangs, and so this process ends: \(test.id)\n\(lines.sorted().joined())".utf8))
                exit(1)
            }
        }
    }

    /// The tests that have ended, in this process and in those before it. A line each, and for each case: how many seconds it took without
    /// waiting for its turn, and its id.
    private struct Ended {
        let earlier: Set<String>
        /// Appended to, so that tests which end at the same time do not overwrite each other's line.
        private let descriptor: Int32

        init() {
            let path = ProcessInfo.processInfo.environment["HAPAX_TESTS_ENDED"] ?? "/dev/null"
            let lines = ((try? String(contentsOfFile: path, encoding: .utf8)) ?? "").split(separator: "\n")
            earlier = Set(lines.map { String($0.drop { $0 != " " }.dropFirst()) })
            descriptor = open(path, O_WRONLY | O_APPEND)
        }

        func add(_ test: Test, after time: Duration) {
            let line = Array("\(time / .seconds(1)) \(test.id)\n".utf8)
            _ = write(descriptor, line, line.count)
        }
    }
}

extension Trait where Self == EndOfHangs {
    static var endsWhenItHangs: Self { EndOfHangs() }
}
