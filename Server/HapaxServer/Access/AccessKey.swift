import HapaxModel

/// What a key may do.
package enum KeyKind: String, CaseIterable, Sendable {
    /// Sends events of one project. Public: it is in every app.
    case write
    /// Sends events of one project, and keeps their derived ids to itself (``Registry/DerivedIDs``). Secret: it stays on servers.
    case server
    /// Reads what one project has sent.
    case read
    /// Reads every project and the state of the server, and changes projects and keys.
    case admin
    /// Sends events of one project from pages of the origins that it lists (``Origins``). Public: it is in every page.
    case browser

    /// Whether it may stand where anybody can read it.
    var isPublic: Bool { self == .write || self == .browser }

    /// Stands in the key, so that people and secret scanners see what they have found.
    fileprivate var letter: Character {
        switch self {
        case .write: "w"
        case .server: "s"
        case .browser: "b"
        case .read: "r"
        case .admin: "a"
        }
    }
}

/// A key as people hold it: `hapax_w_`, thirty random characters, and six of a check sum, by which a mistyped key is known without a look-up.
/// Secret scanners find `hapax_[wsbra]_[0-9A-Za-z]{36}`.
package enum AccessKey {
    private static let alphabet = Array("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    private static let randomCharacters = 30
    private static let sumCharacters = 6
    private static let beginningCharacters = 12

    /// - Parameter random: Must be fit for secrets; of its bits, 178 are used.
    package static func make(_ kind: KeyKind, using random: inout some RandomNumberGenerator) -> String {
        let secret = (0..<randomCharacters).map { _ in alphabet[Int.random(in: 0..<alphabet.count, using: &random)] }
        let text = "hapax_\(kind.letter)_" + String(secret)
        return text + sum(text)
    }

    /// Whether it begins as our keys do and is none: a character was changed, lost or added. Keys of people's own making are not judged.
    package static func isMistyped(_ text: String) -> Bool {
        guard text.hasPrefix("hapax_"), KeyKind.allCases.contains(where: { text.hasPrefix("hapax_\($0.letter)_") }) else { return false }
        guard text.utf8.count == "hapax_w_".count + randomCharacters + sumCharacters else { return true }
        return !text.hasSuffix(sum(String(text.dropLast(sumCharacters))))
    }

    /// Enough to tell keys apart in a list, and no help to guess one: the kind and the first four random characters; of a text of somebody else's making the
    /// first six.
    package static func beginning(_ text: String) -> String { String(text.prefix(text.hasPrefix("hapax_") ? beginningCharacters : 6)) }

    /// CRC-32 in base 62.
    private static func sum(_ text: String) -> String {
        var rest = Array(text.utf8).withUnsafeBytes { CheckSum.crc32($0) }
        var digits: [Character] = []
        for _ in 0..<sumCharacters {
            digits.append(alphabet[Int(rest % 62)])
            rest /= 62
        }
        return String(digits.reversed())
    }
}
