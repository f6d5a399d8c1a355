import HapaxModel
import NIOHTTP1

/// What a browser must hear so that a page of another origin may send events, and read what became of them
/// (https://fetch.spec.whatwg.org/#http-cors-protocol). Every answer says it, refusals included: without it a script cannot tell a full server from none, and some
/// SDKs drop what they hold then. Paths for reading never do.
enum CrossOrigin {
    /// Bytes of a list of header fields that is repeated to who asks.
    private static let askedBytes = 1_024

    /// - Parameter isOrigin: Whether pages of an origin may use some key.
    /// - Returns: What goes on the answer's head; nothing if the request is from no page, or from one that may not know.
    static func fields(for request: HTTPRequestHead, _ isOrigin: (String) -> Bool) -> [(name: String, value: String)] {
        guard let origin = request.headers.first(name: "origin"), sends(request), isOrigin(origin) else { return [] }
        var fields = [
            ("Access-Control-Allow-Origin", origin),
            // Some SDKs send cookies along; there are none that mean anything here.
            ("Access-Control-Allow-Credentials", "true"), ("Access-Control-Expose-Headers", "Retry-After, X-Request-Id"),
            ("Vary", "Origin"),
        ]
        if request.method == .OPTIONS {
            fields += [("Access-Control-Allow-Methods", "POST, GET"), ("Access-Control-Max-Age", "86400")]
            let asked = request.headers["access-control-request-headers"].joined(separator: ", ")
            if !asked.isEmpty, asked.utf8.count <= askedBytes { fields.append(("Access-Control-Allow-Headers", asked)) }
        }
        return fields
    }

    private static func sends(_ request: HTTPRequestHead) -> Bool {
        let path = request.uri.prefix { $0 != "?" }
        // A slash more is the same path.
        return path == "/v1/events" || path == "/v1/events/"
            ? [.POST, .OPTIONS].contains(request.method)
            : SenderFormat.isPath(path) || SenderSettings.isPath(path)
    }
}
