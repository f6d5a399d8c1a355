import Foundation
import HapaxModel

/// Which event each record of a CSV file is.
struct CSVMapping {
    /// What the command was told, by the columns' names.
    struct Options: Hashable, Sendable {
        var event: String?
        /// Of every event; with ``event`` of those whose cell is empty.
        var name: String?
        var time: String
        var user: String
        var id: String?
        /// Empty: all columns.
        var idFrom: [String] = []
        /// Whether the day is part of an id.
        var isDated = true
        /// Columns that hold text, even if it looks like something else.
        var textColumns: [String] = []
        /// Columns that hold JSON.
        var jsonColumns: [String] = []
        var zone: String?
        /// Of times that are neither ISO 8601 nor Unix milliseconds.
        var dateFormat: DateFormat?
        /// Whether numbers are as `1.234,50`.
        var hasDecimalComma = false
        /// nil: found in the first line.
        var separator: UInt8?
        var encoding = TextEncoding.utf8
    }

    struct Failure: Error {
        let reason: String
    }

    /// What a record is.
    struct Row {
        /// In the form of a file of lines.
        var event: [UInt8]
        var findings = CSVFindings()
    }

    private enum Reading { case found, text, json }

    private enum Identity {
        /// The cell is the id.
        case own(Int)
        /// The id is derived from these cells.
        case derived([Int])
        /// The id is derived from all cells that are not empty, and their columns' names.
        case whole
    }

    let separator: UInt8
    let columns: [String]
    /// Columns that have a name.
    private let named: [Int]
    private let options: Options
    private let zone: TimeZone?
    private let time: Int
    private let user: Int
    private let event: Int?
    private let identity: Identity
    /// Columns that become properties.
    private let properties: [(column: Int, reading: Reading)]

    private static let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

    /// - Parameter lines: Those of the file: the names of its columns are read.
    static func reading(_ lines: inout LineReader, _ options: Options) throws -> CSVMapping {
        var (options, header) = (options, try lines.next()?.bytes ?? [])
        if let separator = CSVText.namedSeparator(Array(Self.header(header))) {
            options.separator = options.separator ?? separator
            header = try lines.next()?.bytes ?? []
        }
        return try CSVMapping(options, header: header)
    }

    private static func header(_ line: [UInt8]) -> ArraySlice<UInt8> {
        trimmed(line.starts(with: byteOrderMark) ? line[byteOrderMark.count...] : line[...])
    }

    /// - Parameter header: The line with the columns' names.
    init(_ options: Options, header: [UInt8]) throws(Failure) {
        let header = Self.header(header)
        guard !header.isEmpty else { throw Failure(reason: "the file has no first line with the names of its columns") }
        guard !header.contains(0x0D), header.count < LineReader.maximumLineBytes else {
            throw Failure(reason: "the first line does not end: lines must end with LF or CR LF")
        }
        let separator = options.separator ?? CSVText.separator(of: Array(header))
        guard let cells = CSVText.cells(of: header, separator: separator) else {
            throw Failure(
                reason:
                    "the first line is no CSV: a cell in quotation marks does not end before the next one begins, or goes on in the next line"
            )
        }
        var (columns, named): ([String], [Int]) = ([], [])
        for (index, cell) in cells.enumerated() {
            guard let text = String(validUTF8: cell) else {
                throw Failure(reason: "the first line is not UTF-8; is it --encoding windows-1252? iconv makes UTF-8 of others")
            }
            let name = text.trimmingCharacters(in: .whitespaces)
            columns.append(name.isEmpty ? "column_\(index + 1)" : name)
            if !name.isEmpty { named.append(index) }
        }
        var known: Set<String> = []
        for column in columns where !known.insert(column).inserted { throw Failure(reason: "the column '\(column)' is there twice") }
        func index(_ name: String) throws(Failure) -> Int {
            guard let index = columns.firstIndex(of: name) else {
                throw Failure(reason: "there is no column '\(name)'; the columns are \(columns.joined(separator: ", "))")
            }
            return index
        }
        func indices(_ names: [String]) throws(Failure) -> [Int] {
            var found: [Int] = []
            for name in names { found.append(try index(name)) }
            return found
        }
        if options.id == nil, options.idFrom.isEmpty, columns.contains("event_id") {
            throw Failure(reason: "there is a column 'event_id': give --id event_id to keep these ids, or --id-from for others")
        }
        (self.options, self.columns, self.named, self.separator) = (options, columns, named, separator)
        zone = options.zone.flatMap { TimeZone(identifier: $0) }
        (time, user) = (try index(options.time), try index(options.user))
        var used = [time, user]
        if let name = options.event { event = try index(name) } else { event = nil }
        if let event { used.append(event) }
        if let name = options.id {
            let column = try index(name)
            used.append(column)
            // As an export has it.
            if let column = columns.firstIndex(of: "received_at") { used.append(column) }
            identity = .own(column)
        } else {
            identity = options.idFrom.isEmpty ? .whole : .derived(try indices(options.idFrom))
        }
        let (texts, json) = (try indices(options.textColumns), try indices(options.jsonColumns))
        properties = columns.indices.filter { !used.contains($0) }.map {
            ($0, texts.contains($0) ? .text : json.contains($0) ? .json : .found)
        }
    }

    /// - Returns: nil for an empty record.
    /// - Throws: ``EventProblem`` if it is none; ``Failure`` if the command was told too little to say which.
    func row(of record: [UInt8]) throws -> Row? {
        let record = Self.trimmed(record[...])
        guard !record.isEmpty else { return nil }
        guard let raw = CSVText.cells(of: record, separator: separator) else {
            throw CSVProblem(detail: "a cell in quotation marks does not end where it should")
        }
        // Spreadsheets end with rows of nothing.
        guard raw.contains(where: { !$0.isEmpty }) else { return nil }
        guard raw.count == columns.count else {
            throw CSVProblem(detail: "\(raw.count) cell\(raw.count == 1 ? "" : "s"), but the first line has \(columns.count)")
        }
        var cells: [String] = []
        for cell in raw {
            guard let text = String(validUTF8: cell) else {
                throw EventProblem(.invalidUTF8, detail: "the column '\(columns[cells.count])' is not UTF-8; see --encoding")
            }
            cells.append(text)
        }
        let time = try time(of: cells[time])
        let name = event.map { cells[$0] }.flatMap { $0.isEmpty ? nil : $0 } ?? options.name ?? ""
        let id = try id(of: cells, name, time)
        var findings = CSVFindings()
        let values = try properties(of: cells, &findings)
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("event_id", id)
            writer.member("event", name)
            writer.member("time", time.unixMilliseconds)
            writer.member("distinct_id", cells[user])
            writer.member("properties")
            writer.object(values)
        }
        return Row(event: writer.bytes, findings: findings)
    }

    private func time(of cell: String) throws -> ISOTime {
        guard let format = options.dateFormat else { return try ISOTime(cell, in: zone) }
        guard let iso = format.iso(cell.trimmingCharacters(in: .whitespaces)) else {
            throw EventProblem(.invalidTime, detail: "must be as --date-format says: \(format.pattern)")
        }
        // ISO 8601, which a rejection would name else, is not what the file has.
        guard Timestamp("\(iso.count == 10 ? iso + "T00:00:00" : iso)Z") != nil else {
            throw EventProblem(
                .invalidTime, detail: "is as --date-format says (\(format.pattern)), but no day and time of the years 1970 to 9999")
        }
        return try ISOTime(iso, in: zone)
    }

    private func properties(of cells: [String], _ findings: inout CSVFindings) throws -> [String: PropertyValue] {
        var (values, members) = ([String: PropertyValue](), [String: PropertyValue]())
        for (column, reading) in properties where !cells[column].isEmpty {
            let (name, cell) = (columns[column], cells[column])
            switch reading {
            case .text: values[name] = .string(cell)
            case .found:
                let value = Self.value(of: cell, hasDecimalComma: options.hasDecimalComma)
                findings.add(value, of: name)
                values[name] = value
            case .json:
                let value: PropertyValue
                do throws(EventProblem) { value = try PropertyValue(json: cell) } catch {
                    throw CSVProblem(detail: "the column '\(name)' holds no JSON")
                }
                guard name == Self.ownObject else {
                    values[name] = value
                    continue
                }
                guard case .object(let object) = value else { throw CSVProblem(detail: "the column '\(name)' holds no object of JSON") }
                members = object
            }
        }
        return values.merging(members) { column, _ in column }
    }

    /// As an event has it: the members of this object are the event's properties.
    private static let ownObject = "properties"

    /// Whether a line is an event by itself.
    func isRow(_ line: [UInt8]) -> Bool {
        // Whatever the reason, a line of which no event can be made may be part of a text.
        guard let row = try? row(of: line) else { return false }
        return EventScanner.scan(row.event[...]).problem == nil
    }

    private func id(of cells: [String], _ name: String, _ time: ISOTime) throws -> String {
        let key: String
        if case .derived(let indices) = identity, indices.allSatisfy({ cells[$0].isEmpty }) {
            // Events without a key would be one.
            throw CSVProblem(detail: "\(options.idFrom.joined(separator: ", ")) is empty, of which the id is made")
        }
        switch identity {
        case .own(let column): return cells[column]
        case .derived(let indices) where indices.count == 1: key = cells[indices[0]]
        case .derived(let indices):
            var writer = JSONWriter()
            writer.list(indices) { $0.string(cells[$1]) }
            key = String(decoding: writer.bytes, as: UTF8.self)
        case .whole:
            var writer = JSONWriter()
            // A number of the row, or a column that is new and empty, makes no other event.
            let told = named.filter { !cells[$0].isEmpty }
            writer.object(Dictionary(uniqueKeysWithValues: told.map { (columns[$0], .string(cells[$0])) }))
            key = String(decoding: writer.bytes, as: UTF8.self)
        }
        return (options.isDated ? EventID.derived(name: name, key: key, day: time.day) : .derived(name: name, key: key)).description
    }

    /// Numbers that a double holds as they are written, and truth values; all else is text.
    static func value(of cell: String, hasDecimalComma: Bool = false) -> PropertyValue {
        if ["true", "True", "TRUE"].contains(cell) { return true }
        if ["false", "False", "FALSE"].contains(cell) { return false }
        var number = cell
        if hasDecimalComma {
            guard cell.wholeMatch(of: /-?[0-9]+(\.[0-9]{3})*(,[0-9]+)?/) != nil else { return .string(cell) }
            number = cell.replacing(".", with: "").replacing(",", with: ".")
        }
        let isNumber = number.wholeMatch(of: /-?(0|[1-9][0-9]*)(\.[0-9]+)?/) != nil && number.utf8.count { $0 &- 0x30 < 10 } <= 15
        return isNumber ? .number(number) : .string(cell)
    }

    private static func trimmed(_ line: ArraySlice<UInt8>) -> ArraySlice<UInt8> { line.last == 0x0D ? line.dropLast() : line }
}

/// A record of which no event can be made because it is no record of this file.
struct CSVProblem: Error {
    let detail: String

    static let reason = "invalid_csv"

    static let unclosed = CSVProblem(
        detail: "a cell in quotation marks begins in this line and does not end where a row can end")
}
