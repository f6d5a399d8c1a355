import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

/// Which events, by when they were received and when they happened.
struct SpanOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Received from this day (UTC) or instant (RFC 3339) on.", valueName: "time"))
    var from: String?

    @Option(help: ArgumentHelp("Received before this day or instant.", valueName: "time"))
    var to: String?

    @Option(help: ArgumentHelp("Happened from this day (UTC) or instant on, by the event's own time.", valueName: "time"))
    var happenedFrom: String?

    @Option(help: ArgumentHelp("Happened before this day or instant.", valueName: "time"))
    var happenedTo: String?

    var parameters: [(String, String?)] {
        [("from", from), ("to", to), ("happened_from", happenedFrom), ("happened_to", happenedTo)]
    }
}

/// Where to read, and as whom.
struct ReadOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The server's base URL. Default: $HAPAX_SERVER.", valueName: "url"))
    var server: String?

    @Option(help: ArgumentHelp("The project's read key. Default: $HAPAX_READ_KEY.", valueName: "key"))
    var readKey: String?

    @Option(help: ArgumentHelp("Which project; for the admin key, which reads all.", valueName: "name"))
    var project: String?

    /// A whole answer; ends the command without one.
    func answer(_ path: String, _ parameters: [(String, String?)], accept: String = "application/json") async throws -> [UInt8] {
        let body = Locked<[UInt8]>([])
        let transport = SystemTransport.make()
        defer { transport.close() }
        let request = try request(path, parameters, accept: accept, timeout: .seconds(30)) { bytes in body.withLock { $0 += bytes } }
        try Self.check(await transport.send(request))
        return body.withLock { $0 }
    }

    static func foreignAnswer() -> ExitCode {
        Terminal.complain("what came back is no answer of a Hapax server")
        return .failure
    }

    /// - Parameter onBody: Takes the answer as it comes.
    func request(
        _ path: String, _ parameters: [(String, String?)], accept: String = "application/json", timeout: Duration,
        onBody: @escaping @Sendable ([UInt8]) -> Void
    ) throws -> TransportRequest {
        guard let server = server ?? environment("HAPAX_SERVER") else {
            throw ValidationError("From where? Give --server or set HAPAX_SERVER.")
        }
        guard let key = readKey ?? environment("HAPAX_READ_KEY") else {
            throw ValidationError("With which read key? Set HAPAX_READ_KEY or give --read-key.")
        }
        // The same rules for an address and a key as for sending.
        do throws(StartError) {
            _ = try EventClient.Configuration(server: server, writeKey: key, queueDirectory: "/").endpoint()
        } catch {
            throw ValidationError("\(error)")
        }
        let query = (parameters + [("project", project)]).compactMap { name, value in
            value.map { "\(name)=\(Self.encoded($0))" }
        }.joined(separator: "&")
        return TransportRequest(
            url: server + (server.hasSuffix("/") ? "" : "/") + path + (query.isEmpty ? "" : "?" + query),
            headers: [("Authorization", "Bearer \(key)"), ("Accept", accept)], timeout: timeout, onBody: onBody)
    }

    /// Everything but the unreserved characters of RFC 3986, section 2.3.
    private static func encoded(_ text: String) -> String {
        text.utf8.map { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: String(UnicodeScalar(byte))
            default: "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
            }
        }.joined()
    }

    /// Ends the command unless the server has answered with what was asked for.
    static func check(_ answer: Result<TransportAnswer, TransportFailure>) throws {
        switch answer {
        case .success(let answer) where answer.status == 200: return
        case .success(let answer):
            let problem = (try? JSONSerialization.jsonObject(with: Data(answer.body))) as? [String: Any]
            let parameter = (problem?["parameter"] as? String).map { " (\($0))" } ?? ""
            Terminal.complain(
                problem.map { "\($0["code"] ?? "")\(parameter): \($0["detail"] ?? "")" } ?? "the server answers \(answer.status)")
        case .failure(let failure): Terminal.complain("the server cannot be read: \(failure)")
        }
        throw ExitCode.failure
    }
}
