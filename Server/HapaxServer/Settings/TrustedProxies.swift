import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The proxies that are believed when they say for whom they ask. Anybody can write `X-Forwarded-For`.
package struct TrustedProxies: Equatable, Sendable {
    /// An address of either family, as IPv6 (RFC 4291 §2.5.5.2).
    private struct Address: Equatable {
        var bytes: [UInt8]
        var text: String

        init?(_ text: some StringProtocol) {
            let text = String(text)
            bytes = [UInt8](repeating: 0, count: 16)
            if inet_pton(AF_INET6, text, &bytes) != 1 {
                var four = [UInt8](repeating: 0, count: 4)
                guard inet_pton(AF_INET, text, &four) == 1 else { return nil }
                bytes = Self.mapped + four
            }
            self.text = bytes.starts(with: Self.mapped) ? bytes.suffix(4).map { "\($0)" }.joined(separator: ".") : text.lowercased()
        }

        /// As proxies write it: with a port, in brackets.
        init?(forwarded text: Substring) {
            let text = text.trimmingPrefix { $0 == " " || $0 == "\t" }
            if text.first == "[", let end = text.firstIndex(of: "]") {
                self.init(text[text.index(after: text.startIndex)..<end])
            } else if text.count(where: { $0 == ":" }) == 1 {
                self.init(text.prefix { $0 != ":" })
            } else {
                self.init(text.prefix { $0 != " " && $0 != "\t" })
            }
        }

        static let mapped: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]
    }

    private struct Network: Equatable {
        var bytes: [UInt8]
        var bits: Int

        func holds(_ address: Address) -> Bool {
            zip(bytes, address.bytes).enumerated().allSatisfy { index, pair in
                let known = min(max(bits - index * 8, 0), 8)
                return (pair.0 ^ pair.1) & ~UInt8(truncatingIfNeeded: 0xFF >> known) == 0
            }
        }
    }

    private var networks: [Network] = []

    /// None.
    package init() {}

    /// - Parameter text: Addresses and networks (`10.0.0.0/8`), by commas; nil if one is none.
    package init?(_ text: String) {
        for entry in text.split(separator: ",") {
            let parts = entry.filter { !$0.isWhitespace }.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
            guard let address = Address(parts[0]) else { return nil }
            let family = address.bytes.starts(with: Address.mapped) && !parts[0].contains(":") ? 32 : 128
            guard parts.count == 1 || Int(parts[1]).map({ (0...family).contains($0) }) == true else { return nil }
            networks.append(Network(bytes: address.bytes, bits: (parts.count == 2 ? Int(parts[1]) ?? 0 : family) + 128 - family))
        }
    }

    /// The address that asks: the last one that no trusted proxy has.
    ///
    /// - Parameter forwarded: The lines of `X-Forwarded-For`. Each proxy adds whom it has heard at the end.
    /// - Returns: An address and nothing else; nil if the connection has none.
    package func client(of peer: String?, forwarded: [String]) -> String? {
        guard var client = peer.flatMap({ Address($0) }) else { return nil }
        for text in forwarded.flatMap({ $0.split(separator: ",") }).reversed() {
            guard isTrusted(client), let next = Address(forwarded: text) else { break }
            client = next
        }
        return client.text
    }

    private func isTrusted(_ address: Address) -> Bool { networks.contains { $0.holds(address) } }
}
