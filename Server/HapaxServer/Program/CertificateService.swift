import HapaxModel
import Logging
import ServiceLifecycle
import UnixSignals

/// Takes a new certificate when its files have changed, at SIGHUP at once.
@available(macOS 14, *)
struct CertificateService: Service {
    let certificate: Certificate
    /// The wall clock in Unix milliseconds.
    let currentTime: @Sendable () -> Int64
    let logger: Logger

    func run() async throws {
        if certificate.end <= currentTime() {
            logger.error("The certificate has ended: clients will not connect", metadata: ["certificate.end": "\(end)"])
        }
        await cancelWhenGracefulShutdown {
            for await _ in await UnixSignalsSequence(trapping: .sighup) { look() }
        }
    }

    func look() {
        let (known, length) = (certificate.problem, certificate.length)
        switch certificate.look(now: currentTime()) {
        case .unchanged: break
        case .replaced:
            logger.notice("Connections begin under a new certificate", metadata: ["certificate.end": "\(end)"])
            guard certificate.length < length else { break }
            logger.warning(
                "The new certificate's file holds fewer certificates than before: clients may refuse it unless those that lead to its authority follow it",
                metadata: ["certificate.count": "\(certificate.length)", "certificate.count.before": "\(length)"])
        case .unusable(let problem):
            // The same trouble is not logged at every look.
            guard problem != known else { return }
            logger.error(
                "The certificate's files cannot be used; the one before goes on",
                metadata: ["certificate.problem": "\(problem)", "certificate.end": "\(end)"])
        }
    }

    private var end: Timestamp { Timestamp(clampingUnixMilliseconds: certificate.end) }
}
