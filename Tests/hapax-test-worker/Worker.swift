import Foundation
import HapaxClient
import HapaxModel

struct Worker: Sendable {
    let client: EventClient
    let arguments: WorkerArguments

    /// Tracks in a loop on each thread, uploading all the while. Each durable return is reported before the next event is tracked.
    ///
    /// Ends after `count` events with all of them stored; without a count only a signal ends it.
    func track() async -> Int32 {
        let failed = await withTaskGroup(of: Bool.self) { group in
            for thread in 0..<arguments.threads {
                group.addTask { await track(thread: thread) }
            }
            return await group.contains(false)
        }
        let report = await client.shutdown(within: .zero)
        return failed || report.lost > 0 ? 74 : 0
    }

    private func track(thread: Int) async -> Bool {
        let share = arguments.count.map { ($0 + arguments.threads - 1 - thread) / arguments.threads } ?? .max
        var index = 0
        while index < share {
            index += 1
            let properties: Properties = ["thread": .integer(Int64(thread)), "index": .integer(Int64(index))]
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
            "install_id": status.installID.description, "depth": status.depth, "tracked": status.tracked, "created": status.created,
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
