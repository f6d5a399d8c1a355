import HTTPTypes
import HapaxModel
import Hummingbird

/// Reads a request's body within its limits, and decompresses it.
@available(macOS 14, *)
enum RequestBodyReader {
    /// A body as it was received.
    struct Body: Sendable {
        var bytes: [UInt8]
        var isCompressed: Bool
    }

    /// - Throws: ``RequestProblem``: encoding not supported, too large, or cut.
    static func read(_ request: Request) async throws(RequestProblem) -> Body {
        let isCompressed = try isCompressed(request)
        if let announced = announcedBytes(request), announced > EventLimits.maximumBodyBytes { throw tooLarge }
        return Body(bytes: try await collect(request.body), isCompressed: isCompressed)
    }

    /// - Returns: The decompressed body.
    /// - Throws: ``RequestProblem``: too large after decompression, or damaged.
    static func unpacked(_ body: Body) throws(RequestProblem) -> [UInt8] {
        guard body.isCompressed else { return body.bytes }
        let body = body.bytes
        do throws(Gzip.Failure) {
            return try Gzip.decompress(body, limit: EventLimits.maximumDecompressedBodyBytes)
        } catch {
            switch error {
            case .damaged: throw RequestProblem(.invalidEncoding, detail: "the body is not gzip, or is cut")
            case .tooLarge:
                throw RequestProblem(
                    .bodyTooLarge,
                    detail: "the decompressed body is larger than \(EventLimits.maximumDecompressedBodyBytes) bytes")
            case .unavailable: throw RequestProblem(.overloaded, detail: "the server is out of memory")
            }
        }
    }

    static func announcedBytes(_ request: Request) -> Int? {
        request.headers[.contentLength].flatMap { Int($0) }
    }

    private static let tooLarge = RequestProblem(
        .bodyTooLarge, detail: "the body is larger than \(EventLimits.maximumBodyBytes) bytes")

    private static func isCompressed(_ request: Request) throws(RequestProblem) -> Bool {
        switch request.headers[.contentEncoding]?.lowercased() {
        case nil, "", "identity": return false
        case "gzip", "x-gzip": return true
        case .some: throw RequestProblem(.unsupportedEncoding, detail: "the content encoding must be gzip or none")
        }
    }

    /// Takes memory for the bytes that have arrived, not for those that the header announces.
    private static func collect(_ body: RequestBody) async throws(RequestProblem) -> [UInt8] {
        var bytes: [UInt8] = []
        do {
            for try await part in body {
                guard bytes.count + part.readableBytes <= EventLimits.maximumBodyBytes else { throw tooLarge }
                bytes.append(contentsOf: part.readableBytesView)
            }
        } catch let problem as RequestProblem {
            throw problem
        } catch {
            // The connection is lost, so this answer will not be read.
            throw RequestProblem(.malformed, detail: "the body is cut")
        }
        return bytes
    }
}
