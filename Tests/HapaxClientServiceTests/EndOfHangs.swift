import Dispatch
import Foundation
import HapaxModel
import Testing

/// Beside a time limit: lets a hang fail the run instead of holding it up for ever.
///
/// A test that exceeds its limit is only cancelled, and what a defect makes hang does not heed that: a call that never returns, a thread that
/// is blocked. Then the process ends, which fails all of the run.
struct EndOfHangs: SuiteTrait, TestTrait, TestScoping {
    let isRecursive = true

    /// For a test that does heed its cancellation.
    private static let grace: DispatchTimeInterval = .seconds(10)

    func provideScope(for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void) async throws {
        let hasEnded = Locked(false)
        defer { hasEnded.withLock { $0 = true } }
        try await withTaskCancellationHandler {
            try await function()
        } onCancel: {
            DispatchQueue.global().asyncAfter(deadline: .now() + Self.grace) {
                guard !hasEnded.withLock({ $0 }) else { return }
                FileHandle.standardError.write(Data("It hangs, and so the run ends here: \(test.name)\n".utf8))
                exit(1)
            }
        }
    }
}

extension Trait where Self == EndOfHangs {
    static var endsWhenItHangs: Self { EndOfHangs() }
}
