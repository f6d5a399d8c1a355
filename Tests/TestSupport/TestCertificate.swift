import Foundation

/// A certificate for 127.0.0.1, made by openssl; its own authority, unless it has another one.
package struct TestCertificate: Sendable {
    package let certificate: String
    package let key: String

    package struct NotMade: Error {}

    /// - Parameter days: How long it holds.
    package init(
        in directory: TemporaryDirectory, named name: String = "server", days: Int = 30, issuedBy authority: TestCertificate? = nil
    ) async throws {
        (certificate, key) = (directory.path("\(name).pem"), directory.path("\(name)-key.pem"))
        let openssl = try ChildProcess(
            "/usr/bin/env",
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "\(days)",
                "-keyout", key, "-out", certificate, "-subj", "/CN=\(name)", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
            ] + (authority.map { ["-CA", $0.certificate, "-CAkey", $0.key] } ?? []))
        guard await openssl.waitUntilExit() == .exited(0) else { throw NotMade() }
    }
}
