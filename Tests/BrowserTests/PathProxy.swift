import Foundation
import HapaxModel
import TestSupport

/// A proxy that has the server under a path and takes the path away, as nginx does for `location /hapax/ { proxy_pass http://server/; }`.
///
/// An answer is passed on as it comes, so that a stream shows. Each request has a connection of its own.
final class PathProxy: Sendable {
    private let listener: LoopbackSocket
    private let outside = Locked<[String]>([])

    var port: Int { listener.port }
    /// What was asked outside of the path.
    var strays: [String] { outside.withLock { $0 } }

    init(_ path: String, to server: Int) throws {
        let listener = try LoopbackSocket.listening()
        self.listener = listener
        Thread.detachNewThread { [outside] in
            while let client = try? listener.accepted() {
                Thread.detachNewThread { Self.serve(client, path, server, outside) }
            }
        }
    }

    deinit { listener.shutDown() }

    private static func serve(_ client: LoopbackSocket, _ path: String, _ server: Int, _ outside: Locked<[String]>) {
        defer { client.shutDown() }
        var reader = HTTPReader(client)
        guard let request = try? reader.request() else { return }
        let parts = request.startLine.split(separator: " ")
        guard parts.count == 3, parts[1].hasPrefix(path + "/") else { return outside.withLock { $0.append(request.startLine) } }
        let lines = request.headers.filter { $0.name.lowercased() != "connection" } + [(name: "Connection", value: "close")]
        let head =
            "\(parts[0]) \(parts[1].dropFirst(path.count)) HTTP/1.1\r\n" + lines.map { "\($0.name): \($0.value)\r\n" }.joined() + "\r\n"
        guard let upstream = try? LoopbackSocket.connected(port: server), (try? upstream.write(Array(head.utf8) + request.body)) != nil
        else {
            return
        }
        while let bytes = try? upstream.read(), !bytes.isEmpty, (try? client.write(bytes)) != nil {}
        upstream.shutDown()
    }
}
