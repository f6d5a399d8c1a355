import Dispatch
import Foundation
import HapaxModel
import Testing

/// A test's time limit: cancels a test that exceeds it, and ends a run in which a test does not heed that, after naming the test and those that
/// run beside it.
///
/// What a defect makes hang does not heed its cancellation: a call that never returns, a thread that is blocked. Then the process ends.
/// `.ci/run-tests` starts it again for the tests that have not ended yet, which it finds in the file that `HAPAX_TESTS_ENDED` names.
///
/// Of a second in which more wants to run than there are processors only that share counts which a processor can give: beside a load of thirty
/// a test has fifteen times as long on two cores, and one that hangs on an idle machine has its limit.
struct EndOfHangs: SuiteTrait, TestTrait, TestScoping {
    let isRecursive = true
    let limit: Duration

    /// For a test that does heed its cancellation.
    private static let grace = Duration.seconds(10)
    private static let watch = Watch()
    private static let ended = Ended()

    func provideScope(for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void) async throws {
        guard !Self.ended.earlier.contains("\(test.id)") else { return }
        let start = ContinuousClock.now
        let (number, limits) = Self.watch.begin(test.id, limit)
        defer {
            Self.watch.end(number)
            Self.ended.add(test.id, after: .now - start)
        }
        // Child tasks: they run where the test's traits want it to run.
        try await withoutActuallyEscaping(function) { function in
            try await withThrowingTaskGroup(of: Bool.self) { group in
                group.addTask {
                    try await function()
                    return false
                }
                group.addTask {
                    for await _ in limits { return true }
                    return false
                }
                let isOver = try await group.next() == true
                group.cancelAll()
                guard isOver else { return }
                Issue.record("It took longer than \(limit), not counting what it waited for a processor")
                try await group.waitForAll()
            }
        }
    }

    /// Looks once a second, on a thread of its own, which no test can block.
    private final class Watch: Sendable {
        private struct Running {
            var id: Test.ID
            var limit: Duration
            /// Yields once the limit is over.
            var over: AsyncStream<Void>.Continuation
            var spent = Duration.zero
            var isCancelled = false
        }

        private struct State {
            var running: [Int: Running] = [:]
            var next = 0
        }

        private let state = Locked(State())

        init() {
            Thread.detachNewThread { [self] in
                var before = ContinuousClock.now
                while true {
                    Thread.sleep(forTimeInterval: 1)
                    let now = ContinuousClock.now
                    spend((now - before) * Self.share)
                    before = now
                }
            }
        }

        func begin(_ id: Test.ID, _ limit: Duration) -> (number: Int, limits: AsyncStream<Void>) {
            let (limits, over) = AsyncStream.makeStream(of: Void.self)
            return state.withLock { state in
                state.next += 1
                state.running[state.next] = Running(id: id, limit: limit, over: over)
                return (state.next, limits)
            }
        }

        func end(_ number: Int) { state.withLock { _ = $0.running.removeValue(forKey: number) } }

        private func spend(_ time: Duration) {
            let (late, hanging, all) = state.withLock { state in
                for number in state.running.keys { state.running[number]?.spent += time }
                let late = state.running.filter { !$0.value.isCancelled && $0.value.spent > $0.value.limit }
                for number in late.keys { state.running[number]?.isCancelled = true }
                return (late, state.running.first { $0.value.spent > $0.value.limit + EndOfHangs.grace }, state.running)
            }
            for test in late.values { test.over.yield() }
            guard let hanging else { return }
            EndOfHangs.ended.add(hanging.value.id, after: hanging.value.spent)
            let others = all.filter { $0.key != hanging.key }.values
            let lines = others.map { "  beside it ran \($0.id), for \($0.spent / .seconds(1)) s\n" }
            FileHandle.standardError.write(
                Data("It hangs, and so this process ends: \(hanging.value.id)\n\(lines.sorted().joined())".utf8))
            exit(1)
        }

        /// How much of a processor each thread of the machine gets that could run now; 1 where the system does not tell.
        private static var share: Double {
            // As "0.30 0.11 0.04 3/512 4711" (proc(5)): three threads can run.
            let fields = (try? String(contentsOfFile: "/proc/loadavg", encoding: .utf8))?.split(separator: " ") ?? []
            guard fields.count > 3, let runnable = Double(fields[3].prefix { $0 != "/" }) else { return 1 }
            return min(1, Double(ProcessInfo.processInfo.activeProcessorCount) / max(1, runnable))
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

        func add(_ id: Test.ID, after time: Duration) {
            let line = Array("\(time / .seconds(1)) \(id)\n".utf8)
            _ = write(descriptor, line, line.count)
        }
    }
}

extension Trait where Self == EndOfHangs {
    /// Six minutes: on two busy cores a test that takes a second alone has taken three minutes.
    static var endsWhenItHangs: Self { endsWhenItHangs(after: .seconds(360)) }

    static func endsWhenItHangs(after limit: Duration) -> Self { EndOfHangs(limit: limit) }
}
