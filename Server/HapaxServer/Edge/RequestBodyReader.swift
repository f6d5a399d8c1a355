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
        /// Whether another vendor's SDK has sent it, in any of the forms that these pack their bodies in.
        var isForeign = false
        /// Whether it has an event a line.
        var isLines = false
    }

    /// - Throws: ``RequestProblem``: encoding not supported, too large, or cut.
    static func read(_ request: Request) async throws(RequestProblem) -> Body {
        let isCompressed = try isCompressed(request)
        let bytes = try await collect(request, limit: EventLimits.maximumBodyBytes)
        return Body(bytes: bytes, isCompressed: isCompressed)
    }

    /// Of another vendor's SDK: its first bytes say whether it is compressed, since some SDKs do not; one that is not may be as large as another
    /// one decompressed.
    static func readForeign(_ request: Request) async throws(RequestProblem) -> Body {
        let isPlain = try !isCompressed(request, isForeign: true)
        let bytes = try await collect(
            request, limit: isPlain ? EventLimits.maximumDecompressedBodyBytes : EventLimits.maximumBodyBytes)
        let isCompressed = Gzip.isPacked(bytes)
        if isCompressed, bytes.count > EventLimits.maximumBodyBytes { throw tooLarge(EventLimits.maximumBodyBytes) }
        let isLines = request.headers[.contentType]?.lowercased().hasPrefix("application/x-ndjson") == true
        return Body(bytes: bytes, isCompressed: isCompressed, isForeign: true, isLines: isLines)
    }

    /// - Returns: The decompressed body.
    /// - Throws: ``RequestProblem``: too large after decompression, or damaged.
    static func unpacked(_ body: Body) throws(RequestProblem) -> [UInt8] {
        guard body.isForeign else { return body.isCompressed ? try inflated(body.bytes) : body.bytes }
        if body.isLines { return SenderForm.array(ofLines: body.isCompressed ? try inflated(body.bytes, takesZlib: true) : body.bytes) }
        // Each form at most once.
        let plain = SenderForm.json(in: body.isCompressed ? try inflated(body.bytes, takesZlib: true) : body.bytes)
        return !body.isCompressed && Gzip.isPacked(plain) ? try inflated(plain, takesZlib: true) : plain
    }

    private static func inflated(_ bytes: [UInt8], takesZlib: Bool = false) throws(RequestProblem) -> [UInt8] {
        do throws(Gzip.Failure) {
            return try Gzip.decompress(bytes, limit: EventLimits.maximumDecompressedBodyBytes, takesZlib: takesZlib)
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

    private static func tooLarge(_ limit: Int) -> RequestProblem {
        RequestProblem(.bodyTooLarge, detail: "the body is larger than \(limit) bytes")
    }

    private static func isCompressed(_ request: Request, isForeign: Bool = false) throws(RequestProblem) -> Bool {
        switch request.headers[.contentEncoding]?.lowercased() {
        case nil, "", "identity": return false
        case "gzip", "x-gzip": return true
        case "deflate" where isForeign: return true
        case .some:
            throw RequestProblem(
                .unsupportedEncoding, detail: "the content encoding must be \(isForeign ? "gzip, deflate" : "gzip") or none")
        }
    }

    /// Takes memory for the bytes that have arrived, not for those that the header announces.
    private static func collect(_ request: Request, limit: Int) async throws(RequestProblem) -> [UInt8] {
        if let announced = announcedBytes(request), announced > limit { throw tooLarge(limit) }
        var bytes: [UInt8] = []
        do {
            for try await part in request.body {
                guard bytes.count + part.readableBytes <= limit else { throw tooLarge(limit) }
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
