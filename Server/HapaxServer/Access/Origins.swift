import Foundation

/// The web pages that may use a key: origins as browsers name them in `Origin` (https://fetch.spec.whatwg.org/#origin-header), scheme, host and port. What is no
/// browser can send any origin, or none: this keeps out other sites' pages, not forgers.
package struct Origins: Hashable, Sendable {
    /// In small letters; a host may begin with `*.`, for all below it.
    package let texts: [String]

    private static let maximumCount = 50
    private static let maximumBytes = 200
    private static let usualPorts = ["http": ":80", "https": ":443"]

    /// - Throws: ``Registry/Problem``: which text is no origin, or that there are too many.
    package init(_ texts: [String]) throws(Registry.Problem) {
        var read: [String] = []
        for text in texts {
            guard let origin = Self.origin(text) else {
                throw .invalid(
                    parameter: "origins",
                    "must be scheme, host and port as in https://shop.example, http://localhost:3000 or https://*.shop.example: not \(text.prefix(Self.maximumBytes))"
                )
            }
            if !read.contains(origin) { read.append(origin) }
        }
        guard read.count <= Self.maximumCount else {
            throw .invalid(parameter: "origins", "must be \(Self.maximumCount) at most")
        }
        self.texts = read
    }

    private init(checked texts: [String]) { self.texts = texts }

    /// What ``stored`` gave.
    init(stored: String) { self.init(checked: stored.split(separator: " ").map(String.init)) }

    /// For a column.
    var stored: String { texts.joined(separator: " ") }

    /// All of several keys' together.
    static func union(_ all: some Sequence<Origins>) -> Origins { Origins(checked: Array(Set(all.flatMap(\.texts)))) }

    /// Pages of this machine, on any port.
    static let thisMachine = Origins(checked: ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"])

    /// The origin of the page that a request's `Referer` names; `null` if there is none, as of a page that hides it.
    static func ofPage(_ address: String?) -> String {
        guard let address, let scheme = address.range(of: "://") else { return "null" }
        return String(address[..<scheme.upperBound] + address[scheme.upperBound...].prefix { $0 != "/" && $0 != "?" }).lowercased()
    }

    package func contains(_ origin: String) -> Bool { texts.contains { Self.matches($0, origin) } }

    private static func matches(_ pattern: String, _ origin: String) -> Bool {
        if pattern == origin { return true }
        if pattern.hasSuffix(":*") {
            let host = pattern.dropLast(2)
            guard origin.hasPrefix(host) else { return false }
            let port = origin.dropFirst(host.count)
            return port.isEmpty || port.first == ":" && port.dropFirst().allSatisfy(\.isWholeNumber)
        }
        guard let star = pattern.range(of: "://*.") else { return false }
        let (scheme, below) = (pattern[..<star.lowerBound] + "://", pattern[star.upperBound...])
        return origin.hasPrefix(scheme) && origin.hasSuffix("." + below) && origin.utf8.count > scheme.utf8.count + below.utf8.count + 1
            && origin.utf8.dropFirst(scheme.utf8.count).allSatisfy(mayStand)
    }

    /// Names of other alphabets are sent in their ASCII form.
    private static func mayStand(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"): true
        default: "-._[]:".utf8.contains(byte)
        }
    }

    /// As a browser writes it; nil if it is none.
    private static func origin(_ text: String) -> String? {
        let text = text.lowercased()
        if text == "null" { return text }
        guard text.utf8.count <= maximumBytes, let end = text.range(of: "://") else { return nil }
        let scheme = String(text[..<end.lowerBound])
        guard let usualPort = usualPorts[scheme] else { return nil }
        var rest = text[end.upperBound...]
        // People copy an address with the slash that browsers show.
        if rest.hasSuffix("/") { rest = rest.dropLast() }
        if rest.hasSuffix(usualPort) { rest = rest.dropLast(usualPort.count) }
        let host = rest.hasPrefix("*.") ? rest.dropFirst(2) : rest
        let name = host.prefix { $0 != ":" || host.first == "[" }
        let port = host.dropFirst(name.count)
        guard !name.isEmpty, name.first != ".", name.utf8.allSatisfy(mayStand), port.isEmpty || UInt16(port.dropFirst()) != nil else {
            return nil
        }
        return "\(scheme)://\(rest)"
    }
}
