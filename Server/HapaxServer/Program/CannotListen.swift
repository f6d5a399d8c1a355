import Foundation
import NIOCore

/// The server cannot have the port or the address that its settings name; says which setting helps.
struct CannotListen: Error, CustomStringConvertible {
    let description: String

    /// - Returns: nil for an error of another kind.
    init?(_ error: IOError, options: ServerOptions) {
        let (host, port) = (options.host, options.port)
        // Both listeners fail with the same error.
        let metrics = options.metrics.map { ". It may also be port \($0.port) of \($0.host), for metrics: HAPAX_METRICS_PORT" } ?? ""
        switch error.errnoCode {
        case EADDRINUSE:
            let other = port < 65_535 ? port + 1 : 8_080
            description =
                "port \(port) of \(host) is taken: stop what listens there, "
                + "or take another one with HAPAX_PORT=\(other) (or --port \(other))" + metrics
        case EADDRNOTAVAIL:
            description =
                "\(host) is no address of this machine: take another one with HAPAX_HOST=127.0.0.1 (or --host 127.0.0.1)" + metrics
        case EACCES:
            description =
                "port \(port) is kept for programs with the right CAP_NET_BIND_SERVICE, which the unit for systemd gives: "
                + "take another one with HAPAX_PORT=8080 (or --port 8080)" + metrics
        default: return nil
        }
    }
}
