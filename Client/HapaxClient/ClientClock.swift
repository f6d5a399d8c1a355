import Dispatch

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Everything the client knows about time.
package protocol ClientClock: Sendable {
    /// The wall clock in Unix milliseconds. Stamped on events; nothing is ordered or awaited by it.
    var unixMilliseconds: Int64 { get }

    /// A reading that never runs backwards and stands still while the machine sleeps; only differences mean anything.
    var monotonic: Duration { get }

    /// Both at one moment: what belongs together comes from one reading.
    var reading: ClockReading { get }

    /// Runs `action` once after `delay`, on a thread of the clock's own, unless it is cancelled first.
    func schedule(after delay: Duration, _ action: @escaping @Sendable () -> Void) -> any ScheduledAction
}

extension ClientClock {
    package var reading: ClockReading { ClockReading(monotonic: monotonic, unixMilliseconds: unixMilliseconds) }
}

/// Both clocks, read at one moment.
package struct ClockReading: Hashable, Sendable {
    package var monotonic: Duration
    package var unixMilliseconds: Int64

    package init(monotonic: Duration, unixMilliseconds: Int64) {
        (self.monotonic, self.unixMilliseconds) = (monotonic, unixMilliseconds)
    }

    func unixMilliseconds(after delay: Duration) -> Int64 { unixMilliseconds + Int64(delay / .milliseconds(1)) }
}

package protocol ScheduledAction: Sendable {
    func cancel()
}

/// The machine's clock.
package struct SystemClock: ClientClock {
    package init() {}

    package var unixMilliseconds: Int64 {
        let time = Self.read(CLOCK_REALTIME)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }

    package var monotonic: Duration {
        let time = Self.read(Self.monotonicClock)
        return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
    }

    #if canImport(Darwin)
    // As Dispatch's timers and as on Linux it stands still while the machine sleeps: CLOCK_MONOTONIC and its kin go on there.
    private static let monotonicClock = CLOCK_UPTIME_RAW
    #else
    private static let monotonicClock = CLOCK_MONOTONIC
    #endif

    package func schedule(after delay: Duration, _ action: @escaping @Sendable () -> Void) -> any ScheduledAction {
        let (seconds, attoseconds) = min(max(delay, .zero), .seconds(1_000_000_000)).components
        let nanoseconds = Int(seconds) * 1_000_000_000 + Int(attoseconds / 1_000_000_000)
        // A queue for each: an action that waits, as for a disk or for code of the app's, delays no other one.
        let timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "hapax.clock"))
        // It keeps itself until it has fired or is cancelled, which lets go of all of it at once; a work item would stay until its time has come.
        timer.setEventHandler {
            timer.cancel()
            action()
        }
        timer.schedule(deadline: .now() + .nanoseconds(nanoseconds))
        timer.activate()
        return Scheduled(timer: timer)
    }

    // Unchecked: a timer may be cancelled from any thread; it is not touched otherwise.
    private struct Scheduled: ScheduledAction, @unchecked Sendable {
        let timer: any DispatchSourceTimer
        func cancel() { timer.cancel() }
    }

    private static func read(_ clock: clockid_t) -> timespec {
        var time = timespec()
        clock_gettime(clock, &time)
        return time
    }
}
