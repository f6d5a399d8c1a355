import Foundation

/// One line of dpkg's log (`/var/log/dpkg.log`, dpkg(1), `--log`).
struct PackageLogLine {
    /// `2026-11-21 10:15:00`, in the machine's time zone.
    var timestamp: String
    /// `install`, `upgrade`, `remove`, `purge`, `configure`, `trigproc`, `status`, `conffile`, `startup`.
    var action: String
    var fields: [String: String]

    /// - Returns: nil for a line that is none of dpkg's.
    init?(_ line: Substring) {
        let words = line.split(separator: " ").map(String.init)
        guard words.count >= 3, words[0].count == 10, words[1].count == 8 else { return nil }
        timestamp = "\(words[0]) \(words[1])"
        action = words[2]
        let rest = Array(words.dropFirst(3))
        switch action {
        case "status" where rest.count >= 3:
            fields = ["status": rest[0], "version": rest[2]].merging(Self.package(rest[1])) { $1 }
        case "conffile" where rest.count >= 2:
            fields = ["path": rest[0], "decision": rest[1]]
        case "startup":
            fields = ["mode": rest.joined(separator: " ")]
        default:
            guard rest.count >= 3 else { return nil }
            fields = ["old_version": rest[1], "version": rest[2]].merging(Self.package(rest[0])) { $1 }
        }
        // dpkg writes "<none>" where there is no version.
        fields = fields.filter { $0.value != "<none>" }
    }

    private static func package(_ text: String) -> [String: String] {
        let parts = text.split(separator: ":", maxSplits: 1).map(String.init)
        return parts.count == 2 ? ["package": parts[0], "architecture": parts[1]] : ["package": text]
    }
}
