import Foundation
import HapaxModel

/// What a check has found about one subject.
struct Finding: Sendable {
    enum Verdict: String, Comparable, Sendable {
        case ok, warn, fail

        var exitCode: Int32 {
            switch self {
            case .ok: 0
            case .warn: 1
            case .fail: 2
            }
        }

        static func < (left: Verdict, right: Verdict) -> Bool { left.exitCode < right.exitCode }
    }

    var verdict: Verdict
    var subject: String
    var text: String
    /// What helps, a command if there is one.
    var help: String?

    static func ok(_ subject: String, _ text: String) -> Finding { Finding(verdict: .ok, subject: subject, text: text) }

    static func warn(_ subject: String, _ text: String, help: String? = nil) -> Finding {
        Finding(verdict: .warn, subject: subject, text: text, help: help)
    }

    static func fail(_ subject: String, _ text: String, help: String? = nil) -> Finding {
        Finding(verdict: .fail, subject: subject, text: text, help: help)
    }
}

extension [Finding] {
    var verdict: Finding.Verdict { map(\.verdict).max() ?? .ok }

    /// A line each.
    var text: String {
        let width = map(\.subject.count).max() ?? 0
        return map { finding in
            let subject = finding.subject.padding(toLength: width, withPad: " ", startingAt: 0)
            let verdict = finding.verdict.rawValue.padding(toLength: 4, withPad: " ", startingAt: 0)
            return "\(verdict)  \(subject)  \(finding.text)\(finding.help.map { ": \($0)" } ?? "")"
        }.joined(separator: "\n")
    }

    func write(to writer: inout JSONWriter) {
        writer.member("verdict", verdict.rawValue)
        writer.member("findings", list: self) { writer, finding in
            writer.object { writer in
                writer.member("verdict", finding.verdict.rawValue)
                writer.member("subject", finding.subject)
                writer.member("text", finding.text)
                writer.member("help", finding.help)
            }
        }
    }
}
