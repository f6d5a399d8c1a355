import HapaxModel

/// How many events came from senders without numbers, of which the books know nothing: by project, protocol and library. Of their losses nothing is claimed. A value
/// without clock or lock.
struct SenderCounts: Sendable {
    struct Source: Hashable, Sendable {
        var projectID: Int32
        /// ``SenderFormat/via``, or ``native``.
        var via: String
        /// What the first event of a request says of the program that sent it.
        var library: String
    }

    typealias Outcomes = [Receipt.Outcome: Int64]

    /// The protocol of `POST /v1/events`.
    static let native = "events"
    /// Anybody with a write key names libraries: beyond so many, of a project and day, they are counted together.
    static let maximumSources = 200
    static let others = "other"
    /// Bytes of a library's name and version.
    static let libraryBytes = 64
    /// For so many days what came is kept.
    static let days: Int32 = 400

    private var counts: [Source: Outcomes] = [:]
    /// How many sources of each project there are.
    private var sources: [Int32: Int] = [:]

    mutating func add(_ outcomes: Outcomes, of source: Source) {
        var source = source
        if counts[source] == nil {
            if sources[source.projectID, default: 0] >= Self.maximumSources { source.library = Self.others }
            if counts[source] == nil { sources[source.projectID, default: 0] += 1 }
        }
        counts[source, default: [:]].merge(outcomes, uniquingKeysWith: +)
    }

    mutating func take() -> [Source: Outcomes] {
        defer { (counts, sources) = ([:], [:]) }
        return counts
    }
}

extension IngestOutcome {
    /// How many events had each outcome.
    var counts: SenderCounts.Outcomes {
        var counts = results.reduce(into: SenderCounts.Outcomes()) { $0[$1.outcome, default: 0] += 1 }
        if stored > 0 { counts[.stored] = Int64(stored) }
        return counts
    }
}

extension IngestRequest {
    /// Who sent this; nil for an install, which numbers its events.
    ///
    /// - Parameter agent: The header field `User-Agent`, which says what sends our own form, but for pages. Of the others, and of pages, the first event does:
    ///   reading that takes as long as scanning some of them.
    func source(agent: String?) -> SenderCounts.Source? {
        guard report == nil, count > 0 else { return nil }
        let product = agent.map { $0.prefix { $0 != " " }.map { $0 == "/" ? " " : $0 } }.map { String($0) }
        let isToldByEvent = via != nil || agent?.hasPrefix("Mozilla/") == true
        let library = ((isToldByEvent ? rows.keys.first.flatMap(library) : nil) ?? product ?? "").printable
        return .init(
            projectID: projectID, via: via?.via ?? SenderCounts.native,
            library: String(decoding: library.utf8.prefix(SenderCounts.libraryBytes), as: UTF8.self))
    }

    private func library(of row: RowKey) -> String? {
        let properties = EventRecord(row, in: rows.bytes).properties
        func text(_ name: String) -> String? {
            guard let value = PropertyLookup.value(of: name, in: properties), value.count <= SenderCounts.libraryBytes,
                case .string(let text) = try? PropertyValue(json: String(decoding: value, as: UTF8.self))
            else { return nil }
            return text
        }
        for (name, version) in via?.libraries ?? SenderFormat.ownLibrary {
            if let library = text(name) { return [library, text(version)].compactMap(\.self).joined(separator: " ") }
        }
        return nil
    }
}
