import Foundation
import HapaxModel
import NIOCore
import NIOSSL

/// The certificate under which the server speaks TLS: as its files were when they were last of use.
final class Certificate: Sendable {
    /// Why the files are of no use. The text holds nothing of the key.
    struct Problem: Error, Hashable, CustomStringConvertible {
        var description: String
    }

    /// What a look at the files has found.
    enum Finding: Equatable {
        case unchanged
        /// From now on connections begin under the new one.
        case replaced
        /// The one before goes on.
        case unusable(Problem)
    }

    private struct Current {
        var context: NIOSSLContext
        /// Unix milliseconds.
        var end: Int64
        /// How many certificates the file holds.
        var length: Int
        var isAlone: Bool
    }

    private let files: CertificateFiles
    private let current: Locked<Current>
    /// The files' bytes at the last look. Its lock is held during a look, so that two do not mix.
    private let seen: Locked<[Data]>
    private let trouble = Locked<Problem?>(nil)

    /// - Throws: ``Problem``.
    init(_ files: CertificateFiles) throws {
        let bytes = try Self.read(files)
        self.files = files
        seen = Locked(bytes)
        current = Locked(try Self.make(bytes, files))
    }

    /// For a connection that begins now.
    var context: NIOSSLContext { current.withLock { $0.context } }

    /// When it ends, in Unix milliseconds.
    var end: Int64 { current.withLock { $0.end } }

    /// How many certificates clients are shown.
    var length: Int { current.withLock { $0.length } }

    /// Whether there is nothing that leads from it to the authority that has issued it: clients know that one, or refuse it.
    var isAlone: Bool { current.withLock { $0.isAlone } }

    /// Why what the files hold now is of no use; nil if it is served.
    var problem: Problem? { trouble.withLock { $0 } }

    /// Reads the files, and takes a certificate and a key that are new and belong together. While they are being written they do not, so a
    /// later look takes them.
    ///
    /// - Parameter now: Unix milliseconds.
    func look(now: Int64) -> Finding {
        seen.withLock { seen in
            do {
                let bytes = try Self.read(files)
                guard bytes != seen || problem != nil else { return .unchanged }
                seen = bytes
                let new = try Self.make(bytes, files)
                guard new.end > now || end <= now else {
                    throw Problem(description: "\(files.certificate) holds a certificate that has ended")
                }
                current.withLock { $0 = new }
                trouble.withLock { $0 = nil }
                return .replaced
            } catch {
                let problem = error as? Problem ?? Problem(description: "\(error)")
                trouble.withLock { $0 = problem }
                return .unusable(problem)
            }
        }
    }

    private static func read(_ files: CertificateFiles) throws(Problem) -> [Data] {
        var contents: [Data] = []
        for path in [files.certificate, files.key] {
            let file = URL(fileURLWithPath: path).resolvingSymlinksInPath()
            let size = try? FileManager.default.attributesOfItem(atPath: file.path)[.size] as? Int
            guard size ?? 0 <= ServerLimits.certificateBytes else {
                throw Problem(description: "\(path) is no certificate or key: it is too large")
            }
            do { contents.append(try Data(contentsOf: URL(fileURLWithPath: path))) } catch {
                throw Problem(description: "\(path) cannot be read")
            }
        }
        return contents
    }

    private static func make(_ bytes: [Data], _ files: CertificateFiles) throws(Problem) -> Current {
        guard let chain = try? NIOSSLCertificate.fromPEMBytes(Array(bytes[0])), let own = chain.first else {
            throw Problem(description: "\(files.certificate) holds no certificate in PEM")
        }
        guard let key = try? NIOSSLPrivateKey(bytes: Array(bytes[1]), format: .pem) else {
            throw Problem(description: "\(files.key) holds no private key in PEM, or one that a password protects")
        }
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: chain.map { .certificate($0) }, privateKey: .privateKey(key))
        configuration.minimumTLSVersion = .tlsv12
        configuration.applicationProtocols = ["http/1.1"]
        configuration.shutdownTimeout = TimeAmount(ServerLimits.secureClose)
        guard let context = try? NIOSSLContext(configuration: configuration) else {
            throw Problem(description: "the key in \(files.key) does not belong to the certificate in \(files.certificate)")
        }
        let names = try? CertificateNames(der: own.toDERBytes())
        return Current(
            context: context, end: Int64(own.notValidAfter) * 1_000, length: chain.count,
            // One whose names cannot be read has been read by the library all the same; nothing is said of it.
            isAlone: chain.count == 1 && names.map { $0.issuer != $0.subject } ?? false)
    }
}
