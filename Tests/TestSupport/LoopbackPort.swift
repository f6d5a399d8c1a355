import Foundation

/// Picks ports for servers that cannot pick their own.
package enum LoopbackPort {
    package struct NoneFree: Error {}

    /// A port of 127.0.0.1 that nobody listens on.
    ///
    /// From below the range that systems give to outgoing connections: a server that is stopped for a while must get it back.
    package static func unused() throws -> Int {
        for _ in 0..<200 {
            let port = Int.random(in: 15_000..<30_000)
            if (try? LoopbackSocket.listening(port: port)) != nil { return port }
        }
        throw NoneFree()
    }
}
