import Foundation
import TestSupport
import Testing

@testable import HapaxServer

@Suite("The certificate", .endsWhenItHangs)
struct CertificateTests {
    @Test("Files that changed are taken if certificate and key are whole, belong together and have not ended; else the one before goes on")
    func onlyWhatFitsIsTaken() async throws {
        let directory = TemporaryDirectory()
        let (first, second) = (
            try await TestCertificate(in: directory, named: "first", days: 1), try await TestCertificate(in: directory, named: "second")
        )
        let served = CertificateFiles(certificate: directory.path("served.pem"), key: directory.path("served-key.pem"))
        func put(_ certificate: String, _ key: String, cutTo share: Double = 1) throws {
            for (from, to) in [(certificate, served.certificate), (key, served.key)] {
                let bytes = try Data(contentsOf: URL(filePath: from))
                try bytes.prefix(Int(Double(bytes.count) * share)).write(to: URL(filePath: to))
            }
        }
        let (now, day) = (Int64(Date().timeIntervalSince1970 * 1_000), Int64(86_400_000))
        try put(first.certificate, first.key)
        let certificate = try Certificate(served)
        let end = certificate.end
        #expect(abs(end - now - day) < 3_600_000)
        for (change, says, at) in [
            ({}, nil, now), ({ try put(second.certificate, first.key) }, "does not belong", now),
            ({ try put(second.certificate, second.key, cutTo: 0.5) }, "holds no", now),
            ({ try put(second.certificate, second.certificate) }, "no private key", now),
            ({ try put(second.certificate, second.key, cutTo: 0) }, "holds no certificate", now),
            ({ try Data(count: 2_000_000).write(to: URL(filePath: served.key)) }, "too large", now),
            ({ try FileManager.default.removeItem(atPath: served.key) }, "cannot be read", now),
            // As before the trouble: nothing differs any more.
            ({ try put(first.certificate, first.key) }, nil, now),
        ] as [(() throws -> Void, String?, Int64)] {
            try change()
            let finding = certificate.look(now: at)
            if let says {
                guard case .unusable(let problem) = finding, problem.description.contains(says) else {
                    Issue.record("\(says): \(finding)")
                    continue
                }
                #expect(certificate.look(now: at) == finding && certificate.problem != nil && certificate.end == end)
                #expect(throws: Certificate.Problem.self) { try Certificate(served) }
            } else {
                #expect(certificate.look(now: at) != .replaced || certificate.end == end)
                #expect(certificate.problem == nil)
            }
        }
        try put(second.certificate, second.key)
        #expect(certificate.look(now: now) == .replaced && certificate.look(now: now) == .unchanged && certificate.end > end)
        // One that has ended takes no other one's place; after that one's own end it may.
        try put(first.certificate, first.key)
        guard case .unusable = certificate.look(now: now + 2 * day) else {
            Issue.record("ended")
            return
        }
        #expect(certificate.look(now: now + 40 * day) == .replaced)
    }

    @Test("A connection that does not finish its handshake is closed at the deadline of its header", arguments: [[], [0x16, 0x03, 0x01]])
    func handshakeHasADeadline(bytes: [UInt8]) async throws {
        let directory = TemporaryDirectory()
        let files = try await TestCertificate(in: directory)
        var options = RunningServer.options
        options.certificate = CertificateFiles(certificate: files.certificate, key: files.key)
        options.limits.header = .milliseconds(100)
        try await RunningServer.run(options: options) { server in
            let socket = try await blocking { try LoopbackSocket.connected(port: server.port) }
            try await blocking { try socket.write(bytes) }
            _ = try await blocking { while try !socket.read().isEmpty {} }
        }
    }
}
