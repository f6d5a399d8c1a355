import HapaxModel

/// While public keys are in use, a request's host must be this machine. Otherwise a page from elsewhere could have its own name resolved to
/// 127.0.0.1, and read from this server through its visitor's browser (DNS rebinding).
enum HostCheck {
    /// - Parameter authority: `Host`, as it came; nil and empty are allowed, since browsers always send it.
    static func check(_ authority: String?) throws(RequestProblem) {
        guard let authority, !authority.isEmpty else { return }
        // An IPv6 address stands in brackets (RFC 3986 §3.2.2).
        let end =
            authority.hasPrefix("[") ? authority.firstIndex(of: "]").map { authority.index(after: $0) } : authority.firstIndex(of: ":")
        let host = authority[..<(end ?? authority.endIndex)]
        guard ["localhost", "127.0.0.1", "[::1]"].contains(host.lowercased()) else {
            throw RequestProblem(
                .misdirected, detail: "with the public keys demo and demo-read the server answers as localhost, 127.0.0.1 and [::1] only")
        }
    }
}
