import HTTPTypes
import HapaxModel
import Hummingbird

/// `GET /hapax.js`: the script for web pages (docs/browsers.md), for pages of any origin. Our own file, compiled in as `.ci/minify` makes it.
@available(macOS 14, *)
enum ScriptRoute {
    private static let plain = PackageResources.hapax_min_js
    /// Once; nil where zlib has no memory for it.
    private static let packed = try? Gzip.compress(plain, level: 9)
    private static let tag = SHA256Digest(of: String(decoding: plain, as: UTF8.self)).hex.prefix(16)

    static func respond(to request: Request) -> Response {
        let packed = request.headers.takes("gzip", in: .acceptEncoding) ? packed : nil
        // Each form has a tag of its own (RFC 9110 §8.8.3.3).
        let entity = packed == nil ? "\"\(tag)\"" : "\"\(tag)-gzip\""
        let isKnown = (request.headers[.ifNoneMatch] ?? "").contains(entity)
        var response =
            isKnown ? Response(status: .notModified) : Routes.response("text/javascript; charset=utf-8", packed ?? plain)
        response.headers[.eTag] = entity
        response.headers[.vary] = "Accept-Encoding"
        response.headers[.cacheControl] = "public, max-age=3600"
        if packed != nil, !isKnown { response.headers[.contentEncoding] = "gzip" }
        for (name, value) in [
            ("Cross-Origin-Resource-Policy", "cross-origin"), ("Access-Control-Allow-Origin", "*"), ("X-Content-Type-Options", "nosniff"),
        ] {
            if let name = HTTPField.Name(name) { response.headers[name] = value }
        }
        return response
    }
}
