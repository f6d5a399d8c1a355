/// The transport that fits the platform: URLSession on Apple's, libcurl elsewhere.
package enum SystemTransport {
    package static func make() -> any EventTransport {
        #if canImport(Darwin)
        URLSessionTransport()
        #else
        CurlTransport()
        #endif
    }
}
