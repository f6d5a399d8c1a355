/// How the server listens, and how much it takes on at once.
package struct ServerOptions: Sendable {
    package var host = "127.0.0.1"
    /// 0 picks a free one.
    package var port = 8080
    /// nil: plain HTTP.
    package var certificate: CertificateFiles?
    package var proxies = TrustedProxies()
    /// Where metrics are to be had without a key; nil: only with the admin key.
    package var metrics: (host: String, port: Int)?
    package var limits = ServerLimits()

    package init() {}
}

/// The files of the server's certificate, in PEM: the server's own first, then those that lead to its authority (RFC 8446 §4.4.2).
package struct CertificateFiles: Equatable, Sendable {
    package var certificate: String
    package var key: String

    package init(certificate: String, key: String) {
        (self.certificate, self.key) = (certificate, key)
    }
}
