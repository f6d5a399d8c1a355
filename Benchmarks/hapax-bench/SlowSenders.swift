import Foundation
import HapaxModel

/// Connections that cost their sender nothing: a quarter each that says nothing, drips its header, drips its body, and never reads its
/// answers. Whoever is closed comes again, a second later.
final class SlowSenders: Sendable {
    private enum Kind: Int, CaseIterable {
        case silent, header, body, neverReads

        /// What it says at first.
        var greeting: [UInt8] {
            let head =
                "POST /v1/events HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer \(ServerProcess.key)\r\nContent-Type: application/json\r\n"
            switch self {
            case .silent: return []
            case .header: return Array("POST /v1/ev".utf8)
            case .body: return Array("\(head)Content-Length: 1048576\r\n\r\n[".utf8)
            case .neverReads: return Array(String(repeating: Self.question, count: 100).utf8)
            }
        }

        /// What it adds each second.
        var drip: [UInt8] { self == .silent ? [] : self == .neverReads ? Array(Self.question.utf8) : [UInt8(ascii: " ")] }

        private static let question = "GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n"
    }

    private let isStopped = Locked(false)
    private let allOpen = DispatchSemaphore(value: 0)
    private let count: Int
    private let end = DispatchGroup()

    init(port: Int, count: Int) {
        self.count = count
        Thread.detachNewThread(in: end) { [self] in drip(port) }
    }

    func waitUntilOpen() {
        allOpen.wait()
    }

    func stop() {
        isStopped.withLock { $0 = true }
        end.wait()
    }

    private func drip(_ port: Int) {
        var open: [(kind: Kind, connection: HTTPConnection?)] = (0..<count).map { (Kind(rawValue: $0 % 4) ?? .silent, nil) }
        while !isStopped.withLock({ $0 }) {
            let next = ContinuousClock.now + .seconds(1)
            for index in open.indices {
                if let connection = open[index].connection {
                    if !connection.sendWithoutWaiting(open[index].kind.drip) { open[index].connection = nil }
                } else if let connection = try? HTTPConnection(port: port) {
                    _ = connection.sendWithoutWaiting(open[index].kind.greeting)
                    open[index].connection = connection
                }
            }
            if open.allSatisfy({ $0.connection != nil }) { allOpen.signal() }
            // A drip is paced by the clock.
            let left = next - .now
            if left > .zero { usleep(useconds_t(left / .microseconds(1))) }
        }
    }
}
