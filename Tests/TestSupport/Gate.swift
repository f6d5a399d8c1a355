import Foundation
import HapaxModel

/// Closed until told to open, then open for ever. Both threads and tasks can wait at it.
package final class Gate: Sendable {
    private struct State {
        var isOpen = false
        var waiters: [@Sendable () -> Void] = []
        var arrived = 0
        var arrivals: [(count: Int, resume: @Sendable () -> Void)] = []
    }
    private let state = Locked(State())

    package init() {}

    package var isOpen: Bool { state.withLock { $0.isOpen } }

    package func open() {
        let waiters = state.withLock { state in
            state.isOpen = true
            defer { state.waiters = [] }
            return state.waiters
        }
        for resume in waiters { resume() }
    }

    /// Blocks the calling thread; not for tasks.
    package func blockUntilOpen() {
        let semaphore = DispatchSemaphore(value: 0)
        enqueue { semaphore.signal() }
        semaphore.wait()
    }

    /// Waits until `count` threads have come to the gate, open or not.
    package func waitForArrivals(_ count: Int) async {
        await withCheckedContinuation { continuation in
            let isThere = state.withLock { state in
                if state.arrived < count { state.arrivals.append((count, { continuation.resume() })) }
                return state.arrived >= count
            }
            if isThere { continuation.resume() }
        }
    }

    private func enqueue(_ resume: @escaping @Sendable () -> Void) {
        let resumptions = state.withLock { state in
            state.arrived += 1
            var resumptions: [@Sendable () -> Void] = []
            if state.isOpen { resumptions.append(resume) } else { state.waiters.append(resume) }
            let arrived = state.arrived
            resumptions += state.arrivals.filter { $0.count <= arrived }.map(\.resume)
            state.arrivals.removeAll { $0.count <= arrived }
            return resumptions
        }
        for resume in resumptions { resume() }
    }
}
