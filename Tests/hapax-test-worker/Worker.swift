import Dispatch
import Foundation
import HapaxClient
import HapaxModel
import TestSupport

struct Worker: Sendable {
    let client: OpenClient
    let arguments: WorkerArguments

    /// Tracks in a loop on each thread, uploading all the while. Each durable return is reported before the next event is tracked.
    ///
    /// Ends after `count` events with all of them stored; without a count only a signal ends it, SIGTERM with a shutdown.
    func track() async -> Int32 {
        let end = End()
        let signals = await shutDownOnTermination(end)
        defer { signals.cancel() }
        if arguments.label != nil { await introduce() }
        let failed = await withTaskGroup(of: Bool.self) { group in
            for thread in 0..<arguments.threads {
                group.addTask { await track(thread: thread) }
            }
            return await group.contains(false)
        }
        guard end.claim() else { return await end.wait() }
        let report = await client.shutdown(within: .zero)
        return failed || report.lost > 0 ? 74 : 0
    }

    private func track(thread: Int) async -> Bool {
        let share = arguments.count.map { ($0 + arguments.threads - 1 - thread) / arguments.threads } ?? .max
        var index = 0
        while index < share {
            index += 1
            if let label = arguments.label {
                guard await trackMarked(Mark(run: label, thread: thread, index: index)) else { return false }
                continue
            }
            let properties: Properties = ["thread": thread, "index": index]
            guard arguments.durably else {
                while client.track("worker", properties: properties) == nil {
                    // The mailbox is full: the store sets the pace.
                    guard (try? await client.waitUntilStored()) != nil else { return false }
                }
                continue
            }
            do {
                let (id, sequence) = try await client.trackDurablySequenced("worker", properties: properties)
                Self.report("durable \(id) \(sequence ?? 0)\n")
            } catch {
                FileHandle.standardError.write(Data("\(error)\n".utf8))
                return false
            }
        }
        return true
    }

    /// Under an id of its own on every other thread: then what could not be stored is tracked again, as the same event.
    ///
    /// - Returns: false once nothing more is taken.
    private func trackMarked(_ mark: Mark) async -> Bool {
        var ids = UUIDv7Generator()
        let id = mark.thread.isMultiple(of: 2) ? ids.next(unixMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000)) : .made
        while true {
            do throws(TrackError) {
                let properties = mark.properties(fill: arguments.fill)
                let (id, sequence) = try await client.trackDurablySequenced("worker", properties: properties, id: id)
                Self.report("durable \(id) \(sequence ?? 0) \(mark)\n")
                return true
            } catch {
                switch error {
                case .notStored: Self.report("unstored \(mark)\n")
                case .refused(let reason):
                    Self.report("refused \(reason.rawValue) \(mark)\n")
                    return false
                default: return false
                }
                if id == .made { return true }
            }
        }
    }

    private func introduce() async {
        Self.report("install \(client.counters.installID)\n")
    }

    /// Returns when a signal is heard of: before, it would be lost.
    private func shutDownOnTermination(_ end: End) async -> any DispatchSourceProtocol {
        // The default action would end the process before the source hears of it.
        signal(SIGTERM, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .global())
        source.setEventHandler {
            guard end.claim() else { return }
            Task {
                let report = await client.shutdown(within: .seconds(1))
                exit(report.lost > 0 ? 74 : 0)
            }
        }
        await withCheckedContinuation { continuation in
            source.setRegistrationHandler { continuation.resume() }
            source.resume()
        }
        return source
    }

    /// Uploads until nothing is left or the time is over, and says how it stands.
    func drain() async -> Int32 {
        let deadline = ContinuousClock.now + .seconds(arguments.within)
        var report = await client.flush()
        while report.remaining > 0 || report.failure != nil, ContinuousClock.now < deadline {
            // Between attempts, not for something to become ready: what is down is asked again a few times a second.
            try? await Task.sleep(for: .milliseconds(200))
            report = await client.flush()
        }
        let status = await client.status()
        let line: [String: Any] = [
            "install_id": client.counters.installID.description, "depth": status.depth, "created": status.created,
            "stored": status.stored, "duplicates": status.duplicates, "dead_lettered": status.deadLettered,
            "dropped": status.dropped, "failure": report.failure.map { "\($0)" } ?? "",
        ]
        if let data = try? JSONSerialization.data(withJSONObject: line, options: .sortedKeys) {
            Self.report(String(decoding: data, as: UTF8.self) + "\n")
        }
        let left = report.remaining > 0 || report.failure != nil
        _ = await client.shutdown(within: .zero)
        return left ? 2 : 0
    }

    /// One write for one line, so that lines of several threads do not mix and a kill cuts none that was acted upon.
    private static func report(_ line: String) {
        let bytes = Array(line.utf8)
        _ = bytes.withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
    }
}

/// Shutting down is for one to do: who tracked the last event, or who was told to by a signal.
private final class End: Sendable {
    private let claimed = Locked(false)

    /// - Returns: Whether it is the caller's to do now.
    func claim() -> Bool {
        claimed.withLock { claimed in
            defer { claimed = true }
            return !claimed
        }
    }

    /// The other one ends the process.
    func wait() async -> Int32 {
        await withUnsafeContinuation { (_: UnsafeContinuation<Int32, Never>) in }
    }
}
