import Foundation
import HapaxModel

/// Turns a Debian package log into newline-delimited JSON for `hapax import`.
///
/// Each line becomes one event whose id is derived from the host, the line and how often that very line has occurred before. So converting the
/// same log again, or the same log grown longer, gives the same ids, and the server stores nothing twice.
@main
enum DpkgEvents {
    static let usage = """
        usage: dpkg-events [--host NAME] [FILE]

          FILE         a log of dpkg (default: standard input), such as /var/log/dpkg.log
          --host NAME  whose log it is (default: this machine's name); it becomes distinct_id and a part of each id

        Writes one event a line to standard output, and how many to standard error.
        """

    static func main() {
        var host = ProcessInfo.processInfo.hostName
        var path: String?
        var arguments = Array(CommandLine.arguments.dropFirst())
        while !arguments.isEmpty {
            switch arguments.removeFirst() {
            case "--host" where !arguments.isEmpty: host = arguments.removeFirst()
            case "--help", "-h":
                print(usage)
                exit(0)
            case let argument where !argument.hasPrefix("--") && path == nil: path = argument
            default: fail(usage, code: 64)
            }
        }
        let input = path.map { FileHandle(forReadingAtPath: $0) } ?? .standardInput
        guard let input, let log = try? input.readToEnd() ?? Data() else {
            fail("dpkg-events: cannot read \(path ?? "standard input")", code: 66)
        }
        convert(String(decoding: log, as: UTF8.self), host: host)
    }

    private static func convert(_ log: String, host: String) {
        let clock = LocalClock()
        var occurrences: [String: Int] = [:]
        var written = 0
        var skipped = 0
        // dpkg is still writing a line without its end: half of it would be another event than the whole.
        let isUnfinished = !log.isEmpty && log.utf8.last != UInt8(ascii: "\n")
        let whole = isUnfinished ? log.utf8[..<(log.utf8.lastIndex(of: UInt8(ascii: "\n")) ?? log.startIndex)] : log.utf8[...]
        // By bytes: to Swift a carriage return and the line feed behind it are one character, and no line feed.
        for bytes in whole.split(separator: UInt8(ascii: "\n")) {
            let text = String(decoding: bytes.last == UInt8(ascii: "\r") ? bytes.dropLast() : bytes, as: UTF8.self)
            guard let line = PackageLogLine(text[...]), let date = clock.date(line.timestamp) else {
                skipped += 1
                continue
            }
            // dpkg may write the same line several times within a second: the occurrence tells them apart, in every run alike.
            let occurrence = occurrences[text, default: 0]
            occurrences[text] = occurrence + 1
            let event = Event(
                id: .derived(name: "dpkg_\(line.action)", key: "\(host)\n\(text)\n\(occurrence)"), name: "dpkg_\(line.action)",
                time: Int64(date.timeIntervalSince1970 * 1_000), distinctID: host, properties: Properties(line.fields))
            do {
                try FileHandle.standardOutput.write(contentsOf: Data(event.encoded().bytes + [UInt8(ascii: "\n")]))
            } catch {
                fail("dpkg-events: cannot write standard output", code: 74)
            }
            written += 1
        }
        let rest = skipped > 0 ? ", \(skipped) lines are none of dpkg's" : ""
        let last = isUnfinished ? ", the last line is unfinished and left out" : ""
        note("dpkg-events: \(written) events\(rest)\(last)")
    }

    private static func fail(_ message: String, code: Int32) -> Never {
        note(message)
        exit(code)
    }

    private static func note(_ message: String) {
        try? FileHandle.standardError.write(contentsOf: Data("\(message)\n".utf8))
    }
}
