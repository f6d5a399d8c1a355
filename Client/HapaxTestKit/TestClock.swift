import Foundation
import HapaxClient
import HapaxModel

/// A clock that stands still until a test moves it: of sessions, timers, and the time between attempts to deliver.
public final class TestClock: ClientClock {
    private struct Scheduled {
        var number: Int
        var due: Duration
        var action: @Sendable () -> Void
    }

    private struct State {
        var elapsed: Duration = .zero
        var wallOffset: Duration = .zero
        var isPastWhatIsScheduled = false
        var next = 0
        var scheduled: [Scheduled] = [] {
            didSet { count.set(scheduled.count) }
        }
        let count = AwaitedCount()
    }

    package static let start: Int64 = 1_763_680_000_000
    private let state = Locked(State())

    /// Stands at a fixed moment of 2025.
    public init() {}

    /// What events get as their time.
    public var now: Date { Date(timeIntervalSince1970: Double(unixMilliseconds) / 1_000) }

    package var unixMilliseconds: Int64 { reading.unixMilliseconds }
    package var monotonic: Duration { reading.monotonic }
    package var reading: ClockReading {
        state.withLock {
            ClockReading(
                monotonic: $0.elapsed, unixMilliseconds: Self.start + Int64(($0.elapsed + $0.wallOffset) / .milliseconds(1)))
        }
    }

    /// As people and time servers do; what is scheduled is not concerned.
    package func moveWallClock(by offset: Duration) { state.withLock { $0.wallOffset += offset } }

    /// Whether each action is due as soon as it is scheduled, as in a process that is suspended just then.
    package var isPastWhatIsScheduled: Bool {
        get { state.withLock { $0.isPastWhatIsScheduled } }
        set { state.withLock { $0.isPastWhatIsScheduled = newValue } }
    }

    /// Delays still to come, in order.
    package var pending: [Duration] { state.withLock { state in state.scheduled.map { $0.due - state.elapsed }.sorted() } }

    package func schedule(after delay: Duration, _ action: @escaping @Sendable () -> Void) -> any ScheduledAction {
        let number = state.withLock { state in
            state.next += 1
            state.scheduled.append(Scheduled(number: state.next, due: state.elapsed + delay, action: action))
            return state.next
        }
        if isPastWhatIsScheduled { advance(by: delay) }
        return Cancellation(clock: self, number: number)
    }

    /// Actions that were ever scheduled.
    package var everScheduled: Int { state.withLock { $0.next } }

    /// Returns once so many actions are scheduled.
    package func scheduled(_ count: Int) async {
        await state.withLock { $0.count }.reaches(count)
    }

    /// Moves on; what is due by then happens before it returns, on this thread.
    public func advance(by duration: Duration) {
        let due = state.withLock { state in
            state.elapsed += duration
            let now = state.elapsed
            let due = state.scheduled.filter { $0.due <= now }.sorted { $0.due < $1.due }
            state.scheduled.removeAll { $0.due <= now }
            return due
        }
        for scheduled in due { scheduled.action() }
    }

    /// Moves on, step by step, until something has happened that takes time.
    package func advance(by step: Duration, until hasHappened: () async throws -> Bool) async rethrows {
        while try await !hasHappened(), !Task.isCancelled {
            advance(by: step)
            await Task.yield()
        }
    }

    private struct Cancellation: ScheduledAction {
        let clock: TestClock
        let number: Int
        func cancel() { clock.state.withLock { $0.scheduled.removeAll { $0.number == number } } }
    }
}
