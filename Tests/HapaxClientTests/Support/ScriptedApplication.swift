import HapaxClient
import HapaxModel
import TestSupport

/// An app as a test wants it, which counts the assertions that it gave and got back.
final class ScriptedApplication: ApplicationAdapter {
    private struct State {
        var isInBackground = false
        var remaining: Duration = .seconds(30)
        var grants = true
        var given = 0
        var ended: [Int] = []
        var whenAsked: (@Sendable () -> Void)?
    }

    private let state = Locked(State())
    private let endedCount = AwaitedCount()

    init(isInBackground: Bool = false, remaining: Duration = .seconds(30), grants: Bool = true) {
        state.withLock { $0 = State(isInBackground: isInBackground, remaining: remaining, grants: grants) }
    }

    var isInBackground: Bool { state.withLock { $0.isInBackground } }

    var remainingBackgroundTime: Duration {
        get {
            let (remaining, whenAsked) = state.withLock { state in
                defer { state.whenAsked = nil }
                return (state.remaining, state.whenAsked)
            }
            whenAsked?()
            return remaining
        }
        set { state.withLock { $0.remaining = newValue } }
    }

    /// Called once, when it is next asked how much time is left, behind the answer.
    func whenAsked(_ action: @escaping @Sendable () -> Void) { state.withLock { $0.whenAsked = action } }

    /// Whether assertions are granted from now on.
    var grants: Bool {
        get { state.withLock { $0.grants } }
        set { state.withLock { $0.grants = newValue } }
    }

    /// In the order they were given back.
    var ended: [Int] { state.withLock { $0.ended } }
    var given: Int { state.withLock { $0.given } }

    func beginAssertion() -> Int? {
        state.withLock { state in
            guard state.grants else { return nil }
            state.given += 1
            return state.given
        }
    }

    func endAssertion(_ assertion: Int) {
        state.withLock { state in
            state.ended.append(assertion)
            endedCount.set(state.ended.count)
        }
    }

    /// Returns once so many assertions have been given back.
    func assertionEnded(_ count: Int = 1) async {
        await endedCount.reaches(count)
    }
}
